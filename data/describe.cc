#include "data/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/os_error.h"
#include "base/text.h"
#include "data/mapped_file.h"
#include "data/npy_header.h"
#include "data/paths.h"
#include "data/roots.h"
#include "data/token_headers.h"
#include "formats/safetensors.h"

namespace meshwright::data {
namespace {

using Map = std::shared_ptr<const MappedFile>;

// A field of one file, before files are put together.
struct Piece {
  std::string field;
  ir::Element element = ir::Element::kU8;
  ir::Dims item;
  int64_t begin_bytes = 0;
  int64_t items = 0;
};

struct FormatRow {
  const char* name;
  ir::DataKind kind;
  const char* extension;  // of the files that are taken of a folder; "": any
  Result<std::vector<Piece>> (*parse)(const Map& file, const std::string& field);
};

template <ir::Element kElement>
Result<std::vector<Piece>> ParseRaw(const Map& file, const std::string& field) {
  const auto bytes = static_cast<int64_t>(file->bytes().size());
  return std::vector<Piece>{{field, kElement, {}, 0, bytes / ir::ElementBytes(kElement)}};
}

Piece TokenPiece(const std::string& field, const TokenRange& range) {
  return {field, range.element, {}, range.begin_bytes, range.tokens};
}

Result<std::vector<Piece>> ParseLlmc(const Map& file, const std::string& field) {
  const auto bytes = static_cast<int64_t>(file->bytes().size());
  MW_ASSIGN_OR_RETURN(const TokenRange range, ParseLlmcHeader(file->bytes(), bytes));
  return std::vector<Piece>{TokenPiece(field, range)};
}

Result<Map> MapLocal(const std::string& path) {
  MW_ASSIGN_OR_RETURN(UniqueFd fd, OpenPlainFile(path, path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Fail(OsError(errno, "stat " + path));
  return MappedFile::Map(std::move(fd), info.st_size, path);
}

Result<std::vector<Piece>> ParseMegatron(const Map& file, const std::string& field) {
  const std::string index_path =
      std::filesystem::path(file->name()).replace_extension(".idx").string();
  const Result<Map> index = MapLocal(index_path);
  if (!index.has_value()) {
    return Fail(index.error().WithContext("a .bin file of Megatron needs its .idx"));
  }
  const auto bytes = static_cast<int64_t>(file->bytes().size());
  const Result<TokenRange> range = ParseMegatronIndex((*index)->bytes(), bytes);
  if (!range.has_value()) return Fail(range.error().WithContext(index_path));
  return std::vector<Piece>{TokenPiece(field, *range)};
}

// The rows of an array: its first dim.
Result<Piece> RowsOf(const std::string& field, ir::Element element, const ir::Dims& shape) {
  if (shape.empty()) {
    return Fail(
        InvalidArgument(fmt::format("'{}' is a single number; an array of records has its "
                                    "rows as first dim",
                                    field)));
  }
  return Piece{field, element, ir::Dims(shape.begin() + 1, shape.end()), 0, shape[0]};
}

Result<std::vector<Piece>> ParseSafetensors(const Map& file, const std::string&) {
  const auto bytes = static_cast<int64_t>(file->bytes().size());
  MW_ASSIGN_OR_RETURN(const formats::SafetensorsHeader header,
                      formats::ParseSafetensorsHeader(file->bytes(), bytes));
  std::vector<Piece> pieces;
  for (const formats::SafetensorsEntry& entry : header.entries) {
    const std::optional<ir::Element> element = ir::ElementOfSafetensors(entry.dtype_name);
    if (!element) {
      return Fail(InvalidArgument(
          fmt::format("tensor '{}' is {}, which cannot be fed", entry.name, entry.dtype_name)));
    }
    MW_ASSIGN_OR_RETURN(Piece piece, RowsOf(entry.name, *element, entry.shape));
    piece.begin_bytes = header.data_begin_bytes + entry.begin_bytes;
    if (!pieces.empty() && piece.items != pieces[0].items) {
      return Fail(InvalidArgument(fmt::format(
          "tensor '{}' has {} rows and '{}' {}; the first dims of all tensors are the records, so "
          "they must be equal",
          piece.field, piece.items, pieces[0].field, pieces[0].items)));
    }
    pieces.push_back(std::move(piece));
  }
  if (pieces.empty()) return Fail(InvalidArgument("it has no tensors"));
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.field < b.field; });
  return pieces;
}

Result<std::vector<Piece>> ParseNpy(const Map& file, const std::string& field) {
  const auto bytes = static_cast<int64_t>(file->bytes().size());
  MW_ASSIGN_OR_RETURN(
      const NpyHeader header,
      ParseNpyHeader(file->bytes().first(static_cast<size_t>(std::min(bytes, kMaxNpyHeaderBytes))),
                     bytes));
  MW_ASSIGN_OR_RETURN(Piece piece, RowsOf(field, header.element, header.shape));
  piece.begin_bytes = header.data_begin_bytes;
  return std::vector<Piece>{std::move(piece)};
}

constexpr auto kTokens = ir::DataKind::kTokens;
constexpr auto kRecords = ir::DataKind::kRecords;

const std::vector<FormatRow>& Formats() {
  static const std::vector<FormatRow> rows = {
      {"bytes", kTokens, "", ParseRaw<ir::Element::kU8>},
      {"uint16", kTokens, "", ParseRaw<ir::Element::kU16>},
      {"uint32", kTokens, "", ParseRaw<ir::Element::kU32>},
      {"llm.c", kTokens, ".bin", ParseLlmc},
      {"megatron", kTokens, ".bin", ParseMegatron},
      {"safetensors", kRecords, ".safetensors", ParseSafetensors},
      {"npy", kRecords, ".npy", ParseNpy},
  };
  return rows;
}

const FormatRow* FindFormat(const std::string& name) {
  for (const FormatRow& row : Formats()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

struct NamedFile {
  std::string field;
  std::string path;
};

// The files of one path, each with the field that it is of where its format has one per file.
Result<std::vector<NamedFile>> FilesOfPath(const FormatRow& format, const std::string& text,
                                           const std::string& folder) {
  const bool npy = std::string_view(format.name) == "npy";
  const size_t mark = npy ? text.find('=') : std::string::npos;
  const bool named =
      mark != std::string::npos && text.substr(0, mark).find('/') == std::string::npos;
  std::string path = named ? text.substr(mark + 1) : text;
  const bool megatron = std::string_view(format.name) == "megatron";
  if (megatron && path.size() > 4 && path.substr(path.size() - 4) == ".idx") {
    path.replace(path.size() - 4, 4, ".bin");
  }
  auto files = ExpandPath(path, folder, format.extension);
  // Megatron names a data set by what its two files have in common.
  if (!files.has_value() && megatron) {
    const auto bins = ExpandPath(path + ".bin", folder, format.extension);
    if (bins.has_value()) files = *bins;
  }
  MW_TRY(files);
  std::vector<NamedFile> found;
  for (const std::string& file : *files) {
    if (megatron && std::filesystem::path(file).extension() == ".idx") continue;
    std::string field(ir::kWindowField);
    if (npy) field = named ? text.substr(0, mark) : std::filesystem::path(file).stem().string();
    found.push_back({std::move(field), file});
  }
  return found;
}

class StreamMaker {
 public:
  explicit StreamMaker(const FormatRow& format) : format_(format) { stream_.kind = format.kind; }

  Status Add(const NamedFile& file, bool validation) {
    MW_ASSIGN_OR_RETURN(const Map map, MapLocal(file.path));
    const auto pieces = format_.parse(map, file.field);
    if (!pieces.has_value()) return pieces.error().WithContext(file.path);
    const auto index = static_cast<int32_t>(stream_.files.size());
    ir::FileRef ref;
    ref.blob.name = file.path;
    ref.blob.size_bytes = static_cast<int64_t>(map->bytes().size());
    stream_.files.push_back(std::move(ref));
    const bool all = format_.kind == kRecords && std::string_view(format_.name) != "npy";
    if (all && !stream_.fields.empty() && pieces->size() != stream_.fields.size()) {
      return InvalidArgument(fmt::format(
          "{} has {} tensors, {} has {}; files of one stream have the "
          "same",
          file.path, pieces->size(), stream_.files[0].blob.name, stream_.fields.size()));
    }
    const bool first = stream_.files.size() == 1;
    for (const Piece& piece : *pieces) MW_TRY(AddPiece(piece, index, validation, first || !all));
    return OkStatus();
  }

  ir::DataStream Take() && { return std::move(stream_); }

 private:
  Status AddPiece(const Piece& piece, int32_t file, bool validation, bool may_be_new) {
    MW_CHECK(file >= 0 && static_cast<size_t>(file) < stream_.files.size()) << "file " << file;
    const std::string& path = stream_.files[static_cast<size_t>(file)].blob.name;
    auto field = std::find_if(stream_.fields.begin(), stream_.fields.end(),
                              [&](const ir::DataField& each) { return each.name == piece.field; });
    if (field == stream_.fields.end()) {
      if (!may_be_new || validation) {
        return InvalidArgument(fmt::format("{} has the field '{}', which {} has not", path,
                                           piece.field, stream_.files[0].blob.name));
      }
      field = stream_.fields.insert(field, {piece.field, piece.element, piece.item, {}, {}});
    }
    if (field->element != piece.element || field->item != piece.item) {
      return InvalidArgument(
          fmt::format("{}: '{}' has items of {}[{}], those of the files before have {}[{}]", path,
                      piece.field, ir::ElementName(piece.element), fmt::join(piece.item, ","),
                      ir::ElementName(field->element), fmt::join(field->item, ",")));
    }
    (validation ? field->validation : field->slices)
        .push_back({file, piece.begin_bytes, piece.items});
    return OkStatus();
  }

  const FormatRow& format_;
  ir::DataStream stream_;
};

}  // namespace

const std::vector<std::string>& FormatNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const FormatRow& row : Formats()) all.emplace_back(row.name);
    return all;
  }();
  return names;
}

bool IsTokenFormat(const std::string& format) {
  const FormatRow* row = FindFormat(format);
  return row != nullptr && row->kind == kTokens;
}

Result<ir::DataStream> DescribeFiles(const FilesRequest& request) {
  const FormatRow* format = FindFormat(request.format);
  if (format == nullptr) {
    return Fail(InvalidArgument(fmt::format("unknown data format '{}'; known: {}{}", request.format,
                                            fmt::join(FormatNames(), ", "),
                                            DidYouMean(request.format, FormatNames()))));
  }
  if (request.paths.empty()) return Fail(InvalidArgument("no data file is named"));
  StreamMaker maker(*format);
  for (const bool validation : {false, true}) {
    for (const std::string& path : validation ? request.validation_paths : request.paths) {
      MW_ASSIGN_OR_RETURN(const std::vector<NamedFile> files,
                          FilesOfPath(*format, path, request.folder));
      for (const NamedFile& file : files) MW_TRY(maker.Add(file, validation));
    }
  }
  ir::DataStream stream = std::move(maker).Take();
  stream.name = request.stream;
  stream.validation_fraction = request.validation_paths.empty() ? request.validation_fraction : 0;
  ir::DataSpec spec;
  spec.streams = {stream};
  MW_TRY(ir::CheckDataSpec(spec));
  return stream;
}

}  // namespace meshwright::data
