# SPDX-License-Identifier: MIT

# ashlar_library(NAME sources... ): a static library with the project's flags.
function(ashlar_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC ashlar_flags)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# ashlar_program(NAME sources...): ends up in build/bin.
function(ashlar_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE ashlar_flags)
endfunction()

# ashlar_unit_test(NAME SOURCES a.c b.c LIBS x y): cmocka test program, run by ctest.
function(ashlar_unit_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ashlar_flags ${T_LIBS} cmocka)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(ASHLAR_SANITIZE) # a sanitizer makes it many times slower
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 6")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS unit)
endfunction()
