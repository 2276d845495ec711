# The plugin libmeshwright_cuda.so: every .cu file of the rooms, and nothing else, is compiled by nvcc and linked
# with CUDA's libraries. All other code knows none of them (docs/adr/0020-cuda-behind-a-plugin.md).
# MESHWRIGHT_CUDA: AUTO builds it when nvcc >= 12 is there, ON insists, OFF does not.
set(MESHWRIGHT_CUDA AUTO CACHE STRING "The CUDA plugin: AUTO (when nvcc >= 12 is there), ON or OFF")
set_property(CACHE MESHWRIGHT_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for A100, H100/H200 and B200, and intermediate code for what comes after.
set(MESHWRIGHT_CUDA_ARCHITECTURES "80-real;90-real;100" CACHE STRING "Architectures of the CUDA plugin")

# Host and plugin of another state of these headers do not fit together: see device/cuda/plugin.h.
file(GLOB interface CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/device/cuda/*.h ${PROJECT_SOURCE_DIR}/ops/cuda/*.h)
list(APPEND interface ${PROJECT_SOURCE_DIR}/device/queue.h ${PROJECT_SOURCE_DIR}/ops/kernel.h
     ${PROJECT_SOURCE_DIR}/ops/device_state.h ${PROJECT_SOURCE_DIR}/collective/nccl/combine.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${interface})
set(hashes)
foreach(header ${interface})
  file(SHA256 ${header} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 fingerprint "${hashes}")
string(SUBSTRING ${fingerprint} 0 12 fingerprint)
set(MW_CUDA_INTERFACE "MESHWRIGHT_CUDA_INTERFACE=\"${PROJECT_VERSION}-${fingerprint}\"")
include(GNUInstallDirs)
set_source_files_properties(device/cuda/plugin.cc PROPERTIES COMPILE_DEFINITIONS
  "${MW_CUDA_INTERFACE};MESHWRIGHT_PLUGIN_DIR=\"../${CMAKE_INSTALL_LIBDIR}/meshwright\"")

if(MESHWRIGHT_CUDA STREQUAL "ON" AND MESHWRIGHT_SANITIZE)
  message(FATAL_ERROR "MESHWRIGHT_CUDA=ON: nvcc does not compile for sanitizers; leave one out")
endif()
if(NOT MESHWRIGHT_CUDA STREQUAL "OFF" AND NOT MESHWRIGHT_SANITIZE)
  include(CheckLanguage)
  # Without a value CMake takes that of another generation of GPUs.
  set(CMAKE_CUDA_ARCHITECTURES ${MESHWRIGHT_CUDA_ARCHITECTURES})
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    # CMake 3.25 does not know nvcc's option for C++20.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    find_package(CUDAToolkit 12)
    set(why_no_cuda "${CMAKE_CUDA_COMPILER} is older than CUDA 12, or its toolkit is not whole")
    if(CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
  else()
    set(why_no_cuda "there is no nvcc on the PATH, or it compiles nothing")
  endif()
  if(NOT CUDAToolkit_FOUND AND MESHWRIGHT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MESHWRIGHT_CUDA=ON: ${why_no_cuda}")
  endif()
  if(NOT CUDAToolkit_FOUND)
    message(STATUS "CUDA plugin: not built, ${why_no_cuda}")
  endif()
endif()

# Generated kernels that tests have compiled for the host (tests/emulated/libraries.h).
list(APPEND MW_TEST_ENVIRONMENT MESHWRIGHT_TEST_CODE_CACHE=${PROJECT_BINARY_DIR}/emulated-code)
if(CUDAToolkit_FOUND)
  list(APPEND MW_TEST_ENVIRONMENT MESHWRIGHT_CUDA_PLUGIN=${PROJECT_BINARY_DIR}/bin/libmeshwright_cuda.so)
endif()

function(mw_cuda_plugin)
  if(NOT CUDAToolkit_FOUND)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/device/*.cu ${PROJECT_SOURCE_DIR}/ops/*.cu
       ${PROJECT_SOURCE_DIR}/collective/*.cu)
  find_path(MW_CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(MW_CUDNN cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(NOT MW_CUDNN OR NOT MW_CUDNN_INCLUDE_DIR)
    # What is left says so when it is asked (ops/cuda/toolkit.cu).
    message(STATUS "CUDA plugin: without cuDNN, attention is our own")
    list(FILTER sources EXCLUDE REGEX "/(sdpa|sdpa_plan|cudnn_graph)\\.cu$")
    set(MW_CUDNN)
  endif()
  add_library(meshwright_cuda MODULE ${sources})
  target_include_directories(meshwright_cuda PRIVATE ${PROJECT_SOURCE_DIR})
  # What the plugin says is a Status; the graphs of attention are plain values. Nothing else of the rooms is in it.
  target_sources(meshwright_cuda PRIVATE ${PROJECT_SOURCE_DIR}/base/check.cc
                 ${PROJECT_SOURCE_DIR}/base/status.cc ${PROJECT_SOURCE_DIR}/ops/cuda/sdpa_graph.cc)
  # The oldest GPU of the list; 0 where it is not numbers ("native").
  string(REGEX MATCHALL "[0-9]+" numbers "${MESHWRIGHT_CUDA_ARCHITECTURES}")
  list(SORT numbers COMPARE NATURAL)
  list(APPEND numbers 0)
  list(GET numbers 0 oldest)
  target_compile_definitions(meshwright_cuda PRIVATE "${MW_CUDA_INTERFACE}" MESHWRIGHT_CUDA_ARCHITECTURE=${oldest})
  if(MW_CUDNN)
    target_compile_definitions(meshwright_cuda PRIVATE MESHWRIGHT_CUDNN)
    target_include_directories(meshwright_cuda PRIVATE ${MW_CUDNN_INCLUDE_DIR})
  endif()
  target_compile_options(meshwright_cuda PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-fvisibility=hidden>")
  target_link_libraries(meshwright_cuda PRIVATE CUDA::cudart CUDA::cublasLt CUDA::nvrtc ${MW_CUDNN} fmt::fmt-header-only tl::expected)
  set_target_properties(meshwright_cuda PROPERTIES
                        CUDA_RUNTIME_LIBRARY Shared CUDA_SEPARABLE_COMPILATION OFF
                        POSITION_INDEPENDENT_CODE ON LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
                        # Installed it finds the toolkit's libraries as here.
                        INSTALL_RPATH_USE_LINK_PATH ON)
  message(STATUS "CUDA plugin: CUDA ${CUDAToolkit_VERSION}, ${MESHWRIGHT_CUDA_ARCHITECTURES}")
  # Whoever builds one target alone, as ./run does, installs what there is.
  install(TARGETS meshwright_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/meshwright OPTIONAL)
endfunction()
