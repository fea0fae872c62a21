# SPDX-License-Identifier: MIT
# Build-wide switches and warning flags.
option(ASHLAR_WERROR "Warnings are errors (CI)" OFF)
option(ASHLAR_TEST_SWITCHES "Test build: rules of the protocol can be left out at run time" OFF)
option(ASHLAR_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
set(ASHLAR_SANITIZE "" CACHE STRING "address (with undefined), thread, or empty")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# Assertions that guard data stay on in every build: NDEBUG is never defined.
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")

add_library(ashlar_flags INTERFACE)
target_compile_options(ashlar_flags INTERFACE
  -Wall -Wextra -Wshadow -Wvla -Wmissing-prototypes -Wstrict-prototypes -Wformat=2
  -Wno-unused-parameter -fno-strict-aliasing -fno-common)
target_compile_definitions(ashlar_flags INTERFACE _GNU_SOURCE)
target_include_directories(ashlar_flags INTERFACE
  ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/gen)
if(ASHLAR_WERROR)
  target_compile_options(ashlar_flags INTERFACE -Werror)
endif()
if(ASHLAR_TEST_SWITCHES)
  target_compile_definitions(ashlar_flags INTERFACE ASHLAR_TEST_SWITCHES)
endif()
if(ASHLAR_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(ASHLAR_SANITIZE STREQUAL "thread")
  # gcc warns that TSan does not model fences: the one fence orders a flag that the kernel reads.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
  add_link_options(-fsanitize=thread)
endif()
if(ASHLAR_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
