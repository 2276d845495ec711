# Installation: the binary, and the client side as a CMake package:
#   find_package(meshwright CONFIG REQUIRED)
#   target_link_libraries(app PRIVATE meshwright::client meshwright::models)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(MW_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/meshwright)
set(MW_PACKAGE_ROOMS base ir formats data proto client models)

include(cmake/PublicHeaders.cmake)
foreach(file ${MW_PUBLIC_HEADERS} ${MW_PUBLIC_PROTOS})
  get_filename_component(room ${file} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${file} DESTINATION include/meshwright/${room})
endforeach()
set(package_targets)
foreach(room ${MW_PACKAGE_ROOMS})
  list(APPEND package_targets mw_${room})
endforeach()
install(TARGETS ${package_targets} EXPORT meshwrightTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/meshwright)
install(EXPORT meshwrightTargets NAMESPACE meshwright:: DESTINATION ${MW_PACKAGE_DIR})

# With the build tree's bin/ on the PATH find_package comes across the configuration there: it works, too.
export(EXPORT meshwrightTargets NAMESPACE meshwright:: FILE ${PROJECT_BINARY_DIR}/meshwrightTargets.cmake)

install(TARGETS meshwright RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(cmake/meshwrightConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/meshwrightConfig.cmake
                              INSTALL_DESTINATION ${MW_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/meshwrightConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/meshwrightConfig.cmake
              ${PROJECT_BINARY_DIR}/meshwrightConfigVersion.cmake
        DESTINATION ${MW_PACKAGE_DIR})
