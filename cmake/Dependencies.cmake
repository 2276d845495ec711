# Third-party packages, all from Debian 12 (tools/apt-packages.txt). Imported targets, so their
# headers count as system headers.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(tl-expected CONFIG REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED COMPONENTS pull)
find_package(CLI11 REQUIRED)

include(cmake/Import.cmake)

# The dnnl package's configuration requires OpenCL; only the header and the library are needed.
mw_import(dnnl::dnnl dnnl.hpp dnnl)
mw_import(hwy::hwy hwy/highway.h hwy)
mw_import(tomlplusplus::tomlplusplus toml++/toml.h "")
mw_import(mw_xxhash xxhash.h xxhash)
# Patterns, Unicode and JSON of tokenizers. The CMake configuration of PCRE2 is not packaged.
mw_import(mw_pcre2 pcre2.h pcre2-8)
mw_import(mw_utf8proc utf8proc.h utf8proc)
mw_import(mw_simdjson simdjson.h simdjson)
# Images of data. What CMake has for the two looks for more than headers and library.
mw_import(mw_png png.h png16)
mw_import(mw_jpeg jpeglib.h jpeg)
# Comes with prometheus-cpp; the HTTP server of base/metrics_server.cc uses its C interface.
mw_import(mw_civetweb civetweb.h civetweb)

if(MESHWRIGHT_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
  mw_import(rapidcheck rapidcheck.h rapidcheck)
endif()
