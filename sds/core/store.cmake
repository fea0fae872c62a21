# SPDX-License-Identifier: MIT
# The device store, apart from the rest of the core so that its tests need nothing else.
ashlar_library(ashlar_sds_store
  journal_codec.c label.c store_codec.c)
target_link_libraries(ashlar_sds_store PUBLIC ashlar_base)
