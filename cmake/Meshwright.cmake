# mw_library(base DEPS fmt::fmt): one static library per room, from every .cc file under the folder.
# mw_tests(unit/base DEPS base): one GoogleTest binary per tests/<path> folder.
# ALONE (of sanitizer builds): see mw_unity. DEPS names rooms (base, ir, ...) or imported targets; only declared edges link. A room that has no
# sources yet, and edges to it, are left out.

set(MW_WARNINGS -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Wno-restrict -Werror)
if(MESHWRIGHT_SANITIZE)
  # Sanitizers make gcc 12 guess wrong about initialisation and bounds: the plain build is the judge.
  set(MW_WARNINGS -w)
endif()

# Sanitizer builds are compiled in groups of files, and for the address sanitizer without
# optimisation where no test computes for long: half of the time. ARGN: names of files that stay
# alone, since their local names clash or they are compiled once per instruction set.
function(mw_unity target)
  if(NOT MESHWRIGHT_SANITIZE)
    return()
  endif()
  if(MESHWRIGHT_SANITIZE STREQUAL "address"
     AND NOT target MATCHES "^mw_(base|ops|collective)|conformance|property")
    target_compile_options(${target} PRIVATE -O0)
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  get_target_property(sources ${target} SOURCES)
  foreach(pattern ${ARGN})
    foreach(source ${sources})
      if(source MATCHES "${pattern}")
        set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endforeach()
  endforeach()
endfunction()

# Room names to their targets; everything else as it is.
function(mw_resolve_deps out)
  set(result)
  foreach(dep ${ARGN})
    if(TARGET mw_${dep})
      list(APPEND result mw_${dep})
    elseif(NOT IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${dep})
      list(APPEND result ${dep})
    endif()
  endforeach()
  set(${out} ${result} PARENT_SCOPE)
endfunction()

function(mw_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE_DEPS;SOURCES;ALONE" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB_RECURSE ARG_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.cc)
  endif()
  if(NOT ARG_SOURCES)
    return()
  endif()
  add_library(mw_${name} STATIC ${ARG_SOURCES})
  target_compile_options(mw_${name} PRIVATE ${MW_WARNINGS})
  target_include_directories(mw_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:include/meshwright>)
  target_compile_features(mw_${name} PUBLIC cxx_std_20)
  mw_resolve_deps(deps ${ARG_DEPS})
  mw_resolve_deps(private_deps ${ARG_PRIVATE_DEPS})
  target_link_libraries(mw_${name} PUBLIC ${deps} PRIVATE ${private_deps})
  mw_unity(mw_${name} ${ARG_ALONE})
  set_target_properties(mw_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
endfunction()

function(mw_tests path)
  cmake_parse_arguments(ARG "" "TIMEOUT" "DEPS;SOURCES;ALONE" ${ARGN})
  if(NOT MESHWRIGHT_BUILD_TESTS)
    return()
  endif()
  # `ninja tests_unit` builds all binaries of a label: the sanitizer builds need only some.
  string(REGEX REPLACE "/.*" "" label "${path}")
  if(NOT TARGET tests_${label})
    add_custom_target(tests_${label})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${path}/*.cc)
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" target "${path}_test")
  add_executable(${target} ${sources} ${ARG_SOURCES})
  target_compile_options(${target} PRIVATE ${MW_WARNINGS})
  mw_resolve_deps(deps ${ARG_DEPS})
  target_link_libraries(${target} PRIVATE ${deps} GTest::gtest GTest::gmock GTest::gtest_main rapidcheck
                        Threads::Threads)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  mw_unity(${target} ${ARG_ALONE})
  add_dependencies(tests_${label} ${target})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(MESHWRIGHT_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 3")
  endif()
  gtest_discover_tests(${target} TEST_PREFIX "${path}/" DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS ${label}
                                  ENVIRONMENT "${MW_TEST_ENVIRONMENT}")
endfunction()
