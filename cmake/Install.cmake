# Installation: the binary, and the client side as a CMake package:
#   find_package(meshwright CONFIG REQUIRED)
#   target_link_libraries(app PRIVATE meshwright::client meshwright::models)
# and, for those who ask for it, what a worker binary of one's own needs (worker/main.h):
#   find_package(meshwright CONFIG REQUIRED COMPONENTS worker)
#   target_link_libraries(my_worker PRIVATE meshwright::worker_main)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(MW_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/meshwright)
set(MW_PACKAGE_ROOMS base security ir formats data proto client models)
set(MW_WORKER_ROOMS actor checkpoint tokenizer generation mesh compile planner search device ops collective worker config report profile cli_lib worker_main)

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

set(worker_targets)
foreach(room ${MW_WORKER_ROOMS})
  list(APPEND worker_targets mw_${room})
endforeach()
install(TARGETS ${worker_targets} EXPORT meshwrightWorkerTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/meshwright)
install(EXPORT meshwrightWorkerTargets NAMESPACE meshwright:: DESTINATION ${MW_PACKAGE_DIR})

# With the build tree's bin/ on the PATH find_package comes across the configuration there: it works, too.
export(EXPORT meshwrightTargets NAMESPACE meshwright:: FILE ${PROJECT_BINARY_DIR}/meshwrightTargets.cmake)
export(EXPORT meshwrightWorkerTargets NAMESPACE meshwright:: FILE ${PROJECT_BINARY_DIR}/meshwrightWorkerTargets.cmake)
configure_file(cmake/Import.cmake ${PROJECT_BINARY_DIR}/meshwrightImport.cmake COPYONLY)

include(cmake/Package.cmake)

configure_package_config_file(cmake/meshwrightConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/meshwrightConfig.cmake
                              INSTALL_DESTINATION ${MW_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/meshwrightConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/meshwrightConfig.cmake
              ${PROJECT_BINARY_DIR}/meshwrightConfigVersion.cmake ${PROJECT_BINARY_DIR}/meshwrightImport.cmake
        DESTINATION ${MW_PACKAGE_DIR})
