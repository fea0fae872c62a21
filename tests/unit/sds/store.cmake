# SPDX-License-Identifier: MIT
# Tests of the device store. ashlar_sds_simdisk: a world of one simulated disk.
ashlar_library(ashlar_sds_simdisk simdisk.c store_rig.c)
target_link_libraries(ashlar_sds_simdisk PUBLIC ashlar_sds_store ashlar_base)

ashlar_unit_test(test_sds_store_codec SOURCES store_codec_test.c LIBS ashlar_sds_store)
ashlar_unit_test(test_sds_store SOURCES store_test.c LIBS ashlar_sds_simdisk)
