# mw_library(base DEPS fmt::fmt): one static library per room, from every .cc file under the folder.
# mw_tests(unit/base DEPS base): one GoogleTest binary per tests/<path> folder.
# DEPS names rooms (base, ir, ...) or imported targets; only declared edges link.
# ALONE: see mw_unity; SHARDS (4), of sanitizer builds or ALWAYS_SHARDS: see mw_shards; ADDRESS_SKIPS, THREAD_SKIPS:
# what each sanitizer leaves out;
# PLAIN_ONLY: values made of other rooms' code, which sanitizers see elsewhere;
# ONE_THREAD: nothing to see for the thread sanitizer, which leaves it out; THREAD_FILES: only these are for it.

set(MW_WARNINGS -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Wno-restrict -Werror)
if(MESHWRIGHT_SANITIZE)
  # Sanitizers make gcc 12 guess wrong about initialisation and bounds: the plain build is the judge. Of locks it is
  # clang, which builds them: base/mutex.h.
  set(MW_WARNINGS -w)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(MW_WARNINGS -Wno-everything -Wthread-safety -Werror=thread-safety)
  endif()
endif()

# Compiles a target for sanitizers without the checks that double the code (a null pointer crashes anyhow).
# For tests and for rooms above raw memory; base, ir, device, ops, collective and worker keep all checks.
function(mw_check_less target)
  if(MESHWRIGHT_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
endfunction()

# And without optimisation, which takes longer than what its tests compute.
function(mw_compile_fast target)
  target_compile_options(${target} PRIVATE -O0)
  mw_check_less(${target})
endfunction()

# Compiles a target in groups of files, so that common headers are read once for each. ARGN: names of files
# that stay alone, since their local names clash or they are compiled once per instruction set.
function(mw_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  # A group's file includes the sources, so that gcc takes their local types for those of a header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  get_target_property(sources ${target} SOURCES)
  foreach(pattern ${ARGN})
    foreach(source ${sources})
      if(source MATCHES "${pattern}")
        set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endforeach()
  endforeach()
endfunction()

# Compiled headers differ from folder to folder, what they say does not: ccache is told what to look at instead of
# them (CCACHE_PCH_EXTSUM), so that a clone finds what another one compiled.
function(mw_sum_headers target)
  if(NOT CCACHE)
    return()
  endif()
  set(text "")
  foreach(header ${ARGN})
    string(APPEND text "#include ${header}\n")
  endforeach()
  string(SHA256 key "${text}")
  get_property(sum GLOBAL PROPERTY mw_header_sum_${key})
  if(NOT sum)
    set(source ${PROJECT_BINARY_DIR}/CMakeFiles/headers_${key}.cc)
    file(WRITE ${source} "${text}")
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -E -P ${source} OUTPUT_VARIABLE all ERROR_QUIET)
    string(SHA256 sum "${CMAKE_CXX_COMPILER_VERSION}\n${all}")
    set_property(GLOBAL PROPERTY mw_header_sum_${key} ${sum})
  endif()
  foreach(suffix gch pch)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.${suffix}.sum "${sum}\n")
  endforeach()
endfunction()

# Has a test read what nearly all tests include from one compiled file, which takes them half the time. Compilers want
# the flags under which it was compiled, so there is one of each kind; `key` names the kind. Like groups of files it
# hides an include that is missing; the preset `debug` compiles without both.
function(mw_precompile_test_headers target key)
  get_property(owner GLOBAL PROPERTY mw_test_headers_${key})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
    return()
  endif()
  set_property(GLOBAL PROPERTY mw_test_headers_${key} ${target})
  set(headers <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h> <algorithm> <cstring> <functional> <map> <memory>
              <optional> <set> <string> <thread> <vector>)
  target_precompile_headers(${target} PRIVATE ${headers})
  mw_sum_headers(${target} ${headers})
endfunction()

# The same for a room of several groups of files, which each has its own, as their flags differ. What gRPC brings is
# read only where a room speaks it. Code compiled for other instruction sets reads its headers itself.
function(mw_precompile_room_headers target)
  set(headers <fmt/format.h> <fmt/ranges.h> <tl/expected.hpp> <algorithm> <array> <atomic> <chrono> <cmath> <cstring>
              <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view>
              <thread> <tuple> <unordered_map> <utility> <variant> <vector>)
  if(target MATCHES "^mw_(controller|worker|client|cli_lib)$")
    list(APPEND headers <grpcpp/grpcpp.h>)
  endif()
  target_precompile_headers(${target} PRIVATE ${headers})
  mw_sum_headers(${target} ${headers})
endfunction()

# Room names to their targets; everything else as it is.
function(mw_resolve_deps out)
  set(result)
  foreach(dep ${ARGN})
    if(TARGET mw_${dep})
      list(APPEND result mw_${dep})
    elseif(TARGET ${dep})
      list(APPEND result ${dep})
    else()
      message(FATAL_ERROR "'${dep}' is neither a room nor a target")
    endif()
  endforeach()
  set(${out} ${result} PARENT_SCOPE)
endfunction()

function(mw_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE_DEPS;SOURCES;ALONE;HOT" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB_RECURSE ARG_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.cc)
  endif()
  add_library(mw_${name} STATIC ${ARG_SOURCES})
  target_compile_options(mw_${name} PRIVATE ${MW_WARNINGS})
  target_include_directories(mw_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:include/meshwright>)
  target_compile_features(mw_${name} PUBLIC cxx_std_20)
  mw_resolve_deps(deps ${ARG_DEPS})
  mw_resolve_deps(private_deps ${ARG_PRIVATE_DEPS})
  target_link_libraries(mw_${name} PUBLIC ${deps} PRIVATE ${private_deps})
  if(MESHWRIGHT_SANITIZE)
    mw_unity(mw_${name} ${ARG_ALONE})
  elseif(MESHWRIGHT_UNITY)
    mw_unity(mw_${name} ${ARG_ALONE} ${ARG_HOT})
  endif()
  list(LENGTH ARG_SOURCES count)
  if(MESHWRIGHT_UNITY AND MESHWRIGHT_ROOM_HEADERS AND count GREATER 12)
    mw_precompile_room_headers(mw_${name})
  endif()
  if(NOT MESHWRIGHT_SANITIZE AND name MATCHES "^(models|config|report|cli_lib)$")
    target_compile_options(mw_${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # nothing waits for them
  endif()
  if(MESHWRIGHT_SANITIZE)
    if(name MATCHES "^(proto|controller|client|models|config|report|cli_lib)$")
      mw_compile_fast(mw_${name})
    elseif(MESHWRIGHT_SANITIZE STREQUAL "address" AND NOT name MATCHES
           "^(base|ir|mesh|compile|planner|search|ops|collective|emulated)$")
      target_compile_options(mw_${name} PRIVATE -O0)
    endif()
    if(name MATCHES "^(mesh|compile|planner|search)$")
      mw_check_less(mw_${name})
    endif()
  endif()
  set_target_properties(mw_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
endfunction()

# Puts the files of a room's folder into its library (web/assets.h); they are read again when one changes.
function(mw_embed_files name folder)
  set(out ${PROJECT_BINARY_DIR}/${name}_assets.cc)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/${folder}/*)
  add_custom_command(OUTPUT ${out} DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake VERBATIM
                     COMMAND ${CMAKE_COMMAND} -D FOLDER=${PROJECT_SOURCE_DIR}/${name}/${folder} -D OUT=${out}
                             -P ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
                     COMMENT "Embedding ${name}/${folder}")
  target_sources(mw_${name} PRIVATE ${out})
  set_source_files_properties(${out} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Where thousands of tests are short, a process for each costs more than the tests: `count` processes
# run every count-th test. skips: patterns of gtest names that are left out.
function(mw_shards target path count timeout skips)
  string(REGEX REPLACE "/.*" "" label "${path}")
  set(environment "${MW_TEST_ENVIRONMENT}" GTEST_TOTAL_SHARDS=${count})
  if(skips)
    list(JOIN skips ":" filter)
    list(APPEND environment "GTEST_FILTER=-${filter}")
  endif()
  math(EXPR last "${count} - 1")
  foreach(index RANGE ${last})
    add_test(NAME ${path}/shard${index} COMMAND ${target} --gtest_brief=1)
    set_tests_properties(${path}/shard${index} PROPERTIES TIMEOUT ${timeout} LABELS ${label}
                         ENVIRONMENT "${environment};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

function(mw_tests path)
  cmake_parse_arguments(ARG "ONE_THREAD;PLAIN_ONLY;ALWAYS_SHARDS" "TIMEOUT;SHARDS;THREAD_FILES"
                        "DEPS;SOURCES;ALONE;ADDRESS_SKIPS;THREAD_SKIPS" ${ARGN})
  if((ARG_ONE_THREAD AND MESHWRIGHT_SANITIZE STREQUAL "thread") OR (ARG_PLAIN_ONLY AND MESHWRIGHT_SANITIZE))
    return()
  endif()
  # `ninja tests_unit` builds all binaries of a label: the sanitizer builds need only some.
  string(REGEX REPLACE "/.*" "" label "${path}")
  if(NOT TARGET tests_${label})
    add_custom_target(tests_${label})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${path}/*.cc)
  # Tests that count by an operator new of their own, which clang's thread sanitizer does not let them have.
  if(MESHWRIGHT_SANITIZE STREQUAL "thread")
    list(FILTER sources EXCLUDE REGEX "_allocation_test\\.cc$")
    if(ARG_THREAD_FILES)
      list(FILTER sources INCLUDE REGEX "${ARG_THREAD_FILES}")
    endif()
  endif()
  string(REPLACE "/" "_" target "${path}_test")
  add_executable(${target} ${sources} ${ARG_SOURCES})
  # What most tests compute with is in the libraries: their own code need not be fast, but compile fast.
  target_compile_options(${target} PRIVATE ${MW_WARNINGS})
  set(kind checked)
  if(target MATCHES "^(conformance|property)" OR (NOT MESHWRIGHT_SANITIZE AND target MATCHES "^(virtual|unit_(controller|search))"))
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  else()
    mw_compile_fast(${target})
    set(kind fast)
  endif()
  mw_resolve_deps(deps ${ARG_DEPS})
  target_link_libraries(${target} PRIVATE ${deps} GTest::gtest GTest::gmock GTest::gtest_main rapidcheck
                        Threads::Threads)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  if(MOLD)
    target_link_options(${target} PRIVATE -fuse-ld=mold)  # takes a seventh of the time
  endif()
  if(MESHWRIGHT_UNITY)
    mw_unity(${target} ${ARG_ALONE})
    target_compile_options(${target} PRIVATE -pthread)  # which some of the libraries bring, and others not
    mw_precompile_test_headers(${target} ${kind})
  endif()
  add_dependencies(tests_${label} ${target})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(MESHWRIGHT_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 3")
  endif()
  set(sanitizer none)
  if(MESHWRIGHT_SANITIZE)
    string(TOUPPER ${MESHWRIGHT_SANITIZE} sanitizer)
  endif()
  # With a sanitizer a process takes up to half a second to start, which is more than most tests take.
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 4)
  endif()
  if(MESHWRIGHT_SANITIZE OR ARG_ALWAYS_SHARDS OR (MESHWRIGHT_TEST_SHARDS AND label MATCHES "^(unit|conformance)$"))
    mw_shards(${target} ${path} ${ARG_SHARDS} ${ARG_TIMEOUT} "${ARG_${sanitizer}_SKIPS}")
    return()
  endif()
  # Not as ENVIRONMENT, of which it would pass on the first variable only.
  set_target_properties(${target} PROPERTIES CROSSCOMPILING_EMULATOR "/usr/bin/env;${MW_TEST_ENVIRONMENT}")
  list(JOIN ARG_${sanitizer}_SKIPS ":" skips)
  gtest_discover_tests(${target} TEST_PREFIX "${path}/" DISCOVERY_TIMEOUT 60 TEST_FILTER "-${skips}"
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS ${label})
endfunction()
