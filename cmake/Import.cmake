# mw_import(name header library): an imported target from a header and a library (or "" for none),
# where Debian's package has no usable CMake configuration.
function(mw_import name header library)
  string(MAKE_C_IDENTIFIER "MW_${name}" variable)
  find_path(${variable}_INCLUDE_DIR ${header} REQUIRED)
  if(library)
    find_library(${variable}_LIBRARY ${library} REQUIRED)
    add_library(${name} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${${variable}_LIBRARY})
  else()
    add_library(${name} INTERFACE IMPORTED GLOBAL)
  endif()
  set_target_properties(${name} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
                                           ${${variable}_INCLUDE_DIR})
  mark_as_advanced(${variable}_INCLUDE_DIR ${variable}_LIBRARY)
endfunction()
