# Packages of the binary: `cpack -G DEB` and `cpack -G TGZ` in the build folder, once the target `meshwright` is built.
# The .deb needs Debian's libraries, found by dpkg-shlibdeps. The tarball brings them along, so that it runs from any
# folder of a Debian 12 on which nothing is installed.
#
# Components: runtime (the binary, what shells complete, manual pages), bundle (the libraries). Headers and static
# libraries are for `cmake --install`.
set(MW_BUNDLE_DIR ${CMAKE_INSTALL_LIBDIR}/meshwright/bundle)

install(TARGETS meshwright RUNTIME_DEPENDENCY_SET meshwright_libraries
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(RUNTIME_DEPENDENCY_SET meshwright_libraries
        PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread)\\.so" "^ld-linux" "^linux-vdso"
        LIBRARY DESTINATION ${MW_BUNDLE_DIR} COMPONENT bundle EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
foreach(example my-text gpt-bytes gpt2-124m llama-bytes)
  install(FILES ${PROJECT_SOURCE_DIR}/examples/${example}.toml DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples
          COMPONENT runtime OPTIONAL)
endforeach()

# mw_install_said(PATH COMMAND..): what the binary prints, as a file.
function(mw_install_said path)
  get_filename_component(folder ${path} DIRECTORY)
  list(JOIN ARGN " " words)
  install(CODE "set(into \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${path}\")
get_filename_component(folder \"\${into}\" DIRECTORY)
file(MAKE_DIRECTORY \"\${folder}\")
execute_process(COMMAND \"$<TARGET_FILE:meshwright>\" ${words} OUTPUT_FILE \"\${into}\" COMMAND_ERROR_IS_FATAL ANY)
message(STATUS \"Installing: \${into}\")" COMPONENT runtime)
endfunction()
mw_install_said(share/bash-completion/completions/meshwright completion bash)
mw_install_said(share/zsh/vendor-completions/_meshwright completion zsh)
mw_install_said(share/man/man1/meshwright.1 __man)
mw_install_said(share/fish/vendor_completions.d/meshwright.fish completion fish)

# RPATH and not RUNPATH: the libraries of the bundle need one another.
set_target_properties(meshwright PROPERTIES INSTALL_RPATH "$ORIGIN/../${MW_BUNDLE_DIR}")
target_link_options(meshwright PRIVATE -Wl,--disable-new-dtags)

set(CPACK_PACKAGE_NAME meshwright)
set(CPACK_PACKAGE_VENDOR Meshwright)
set(CPACK_PACKAGE_CONTACT "Meshwright <meshwright@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Plans, shards and trains large models over many worker processes")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_COMPONENTS_ALL runtime)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/PackageParts.cmake)  # more for the tarball
include(CPack)
