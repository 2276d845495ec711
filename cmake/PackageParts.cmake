# Read by cpack for each kind of package.
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_COMPONENTS_ALL runtime bundle)
endif()
