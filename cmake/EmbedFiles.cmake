# cmake -D FOLDER=web/pages -D OUT=assets.cc -P cmake/EmbedFiles.cmake: a source file with the bytes of all files of a
# folder, for web/assets.h.
file(GLOB names RELATIVE ${FOLDER} ${FOLDER}/*)
list(SORT names)
set(arrays "")
set(rows "")
set(index 0)
foreach(name ${names})
  file(READ ${FOLDER}/${name} bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kFile${index}[] = {${bytes}0};\n")
  string(APPEND rows "      {\"${name}\", {reinterpret_cast<const char*>(kFile${index}), ${size}}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT}.new "// Made of ${FOLDER} by cmake/EmbedFiles.cmake.
#include \"web/assets.h\"

namespace meshwright::web {
namespace {

${arrays}
}  // namespace

std::span<const Asset> Assets() {
  static const Asset kAssets[] = {
${rows}  };
  return kAssets;
}

}  // namespace meshwright::web
")
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)
file(REMOVE ${OUT}.new)
