# SPDX-License-Identifier: MIT
# The device store, apart from the rest of the core so that its tests need nothing else.
ashlar_library(ashlar_sds_store
  al.c journal.c journal_codec.c label.c store_change.c store_ckpt.c store_codec.c store_csum.c
  store_index.c store_io.c store_jobs.c store_open.c store_ops.c store_read.c store_recover.c
  store_replay.c)
target_link_libraries(ashlar_sds_store PUBLIC ashlar_base)
