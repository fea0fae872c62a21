# SPDX-License-Identifier: MIT
# Tests of the device store. ashlar_sds_simdisk: a world of one simulated disk.
ashlar_library(ashlar_sds_simdisk simdisk.c store_fuzz.c store_rig.c)
target_link_libraries(ashlar_sds_simdisk PUBLIC ashlar_sds_store ashlar_base)

ashlar_unit_test(test_sds_store_codec SOURCES store_codec_test.c LIBS ashlar_sds_store)
ashlar_unit_test(test_sds_store_damage SOURCES store_damage_test.c LIBS ashlar_sds_simdisk)
ashlar_unit_test(test_sds_store SOURCES store_test.c LIBS ashlar_sds_simdisk)

# Crash points: 10 000 here, as many as wanted by hand (--points).
ashlar_program(ashlar-crashtest store_crash.c store_crash_check.c store_crash_work.c store_model.c)
target_link_libraries(ashlar-crashtest PRIVATE ashlar_sds_simdisk)
set(points 10000)
if(ASHLAR_SANITIZE STREQUAL "thread") # it has one thread: TSan only makes it twenty times slower
  set(points 1000)
endif()
add_test(NAME sds_store_crash COMMAND ashlar-crashtest --points ${points})
set_tests_properties(sds_store_crash PROPERTIES TIMEOUT 300 LABELS unit)
if(ASHLAR_TEST_SWITCHES)
  # Every rule of the store, left out, must be noticed.
  add_test(NAME sds_store_rules COMMAND ashlar-crashtest --all-rules --points 60000)
  set_tests_properties(sds_store_rules PROPERTIES TIMEOUT 600 LABELS "unit;slow")
endif()

ashlar_program(ashlar-store-bench store_bench.c filedisk.c)
target_link_libraries(ashlar-store-bench PRIVATE ashlar_sds_store)
# What a device holds, block by block, for comparing copies.
ashlar_program(ashlar-store-dump store_dump.c filedisk.c)
target_link_libraries(ashlar-store-dump PRIVATE ashlar_sds_store)
