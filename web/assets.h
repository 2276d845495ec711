// The files of web/pages, which CMake puts into the binary (cmake/EmbedFiles.cmake).
//
// Thread rule: immutable.
#pragma once

#include <span>
#include <string_view>

namespace meshwright::web {

struct Asset {
  std::string_view name;  // "index.html"
  std::string_view bytes;
};

std::span<const Asset> Assets();

}  // namespace meshwright::web
