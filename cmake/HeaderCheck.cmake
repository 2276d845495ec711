# Target header_check: headers compile on their own, one generated source per header. Not part of `all`;
# `./test` builds it. Left out are headers whose .cc file includes them first, which tests/tidy watches,
# and Highway's *-inl.h files, which are made to be included several times by others.
function(mw_header_check)
  set(sources)
  set(rooms base security actor ir formats checkpoint data tokenizer generation mesh planner search device ops collective proto controller worker client models config
      report web profile cli)
  foreach(room ${rooms})
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
         ${PROJECT_SOURCE_DIR}/${room}/*.h)
    list(FILTER headers EXCLUDE REGEX "[-_]inl\\.h$")
    foreach(header ${headers})
      string(REGEX REPLACE "h$" "cc" own_source ${header})
      if(EXISTS ${PROJECT_SOURCE_DIR}/${own_source})
        continue()
      endif()
      string(REPLACE "/" "_" name ${header})
      set(source ${PROJECT_BINARY_DIR}/header_check/${name}.cc)
      # The second inclusion fails when the guard is missing.
      file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
      list(APPEND sources ${source})
    endforeach()
  endforeach()
  add_library(header_check OBJECT EXCLUDE_FROM_ALL ${sources})
  target_compile_options(header_check PRIVATE ${MW_WARNINGS} -O0 -g0)
  target_include_directories(header_check PRIVATE ${PROJECT_SOURCE_DIR})
  list(TRANSFORM rooms REPLACE "^cli$" cli_lib OUTPUT_VARIABLE libraries)
  mw_resolve_deps(deps ${libraries})
  target_link_libraries(header_check PRIVATE ${deps} nlohmann_json::nlohmann_json dnnl::dnnl
                        hwy::hwy CLI11::CLI11 tomlplusplus::tomlplusplus)
endfunction()
