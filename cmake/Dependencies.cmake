# SPDX-License-Identifier: MIT
# Libraries from the distribution; package names are in deploy/packages/*.list.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

function(ashlar_dependency name module)
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})
endfunction()

ashlar_dependency(LIBURING liburing)
ashlar_dependency(PROTOBUFC libprotobuf-c)
ashlar_dependency(LIBUV libuv)
ashlar_dependency(RAFT raft)
ashlar_dependency(ISAL libisal)
ashlar_dependency(XXHASH libxxhash)
ashlar_dependency(JANSSON jansson)
ashlar_dependency(INIH inih)
ashlar_dependency(BLKID blkid)

# libev has no pkg-config file.
find_path(EV_INCLUDE_DIR ev.h REQUIRED)
find_library(EV_LIBRARY ev REQUIRED)
add_library(ashlar_ev INTERFACE)
target_include_directories(ashlar_ev SYSTEM INTERFACE ${EV_INCLUDE_DIR})
target_link_libraries(ashlar_ev INTERFACE ${EV_LIBRARY})

find_program(PROTOC_C protoc-c REQUIRED)
