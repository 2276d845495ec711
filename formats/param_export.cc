// Strided copies between a tile of a logical tensor and the exported tensor: see the stride map in
// formats/safetensors.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/half.h"
#include "formats/float8.h"
#include "formats/safetensors.h"
#include "formats/weight_notes.h"
#include "ir/adapters.h"
#include "ir/element_value.h"

namespace meshwright::formats {
namespace {

constexpr std::string_view kPlace = "{}";  // in the name of one of several tensors

// Calls visit(tile_element, file_element, count, file_stride) for every run along the last dim of
// the box, in C order.
template <typename Visit>
void ForEachRun(const ir::Dims& sizes, const std::vector<int64_t>& strides, int64_t base,
                Visit visit) {
  const size_t rank = sizes.size();
  MW_CHECK(strides.size() == rank) << "strides of rank " << strides.size() << " for " << rank;
  for (int64_t size : sizes) {
    if (size == 0) return;
  }
  const int64_t count = rank == 0 ? 1 : sizes[rank - 1];
  const int64_t stride = rank == 0 ? 1 : strides[rank - 1];
  ir::Dims index(rank, 0);
  int64_t tile = 0;
  int64_t file = base;
  while (true) {
    visit(tile, file, count, stride);
    tile += count;
    size_t d = rank <= 1 ? 0 : rank - 1;
    while (d > 0) {
      --d;
      file += strides[d];
      if (++index[d] < sizes[d]) break;
      file -= strides[d] * sizes[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (rank <= 1) return;
  }
}

template <typename Element>
void Scatter(const SafetensorsWriter::StridedBox& box, const std::byte* tile, std::byte* file) {
  ForEachRun(box.sizes, box.strides, box.base,
             [&](int64_t from, int64_t to, int64_t count, int64_t stride) {
               constexpr auto kBytes = static_cast<int64_t>(sizeof(Element));
               if (stride == 1) {
                 std::memcpy(file + to * kBytes, tile + from * kBytes,
                             static_cast<size_t>(count * kBytes));
                 return;
               }
               for (int64_t i = 0; i < count; ++i) {
                 std::memcpy(file + (to + i * stride) * kBytes, tile + (from + i) * kBytes,
                             sizeof(Element));
               }
             });
}

struct TileSource {
  const std::byte* file;
  std::optional<ir::DType> file_dtype;
  Float8Reader float8;  // in its place where the graph has no such type
  ir::DType tile_dtype;

  int64_t file_bytes() const { return file_dtype ? ir::DTypeBytes(*file_dtype) : 1; }
  double Load(const std::byte* at) const {
    return file_dtype ? ir::LoadElement(at, *file_dtype) : float8(std::to_integer<uint8_t>(*at));
  }
};

template <typename From, typename To>
void ConvertRun(const std::byte* file, std::byte* tile, int64_t count, To (*convert)(From)) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, file + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    const To converted = convert(value);
    std::memcpy(tile + i * static_cast<int64_t>(sizeof(To)), &converted, sizeof(To));
  }
}

// What checkpoints of large models are mostly read as, without a way over double for each element.
bool ConvertedRun(const TileSource& source, const std::byte* file, std::byte* tile, int64_t count) {
  if (source.file_dtype == ir::DType::kBF16 && source.tile_dtype == ir::DType::kF32) {
    ConvertRun<uint16_t, float>(file, tile, count, Bf16ToFloat);
    return true;
  }
  if (source.file_dtype == ir::DType::kF32 && source.tile_dtype == ir::DType::kBF16) {
    ConvertRun<float, uint16_t>(file, tile, count, FloatToBf16);
    return true;
  }
  return false;
}

void Gather(const SafetensorsWriter::StridedBox& box, const TileSource& source, std::byte* tile) {
  const int64_t file_bytes = source.file_bytes();
  const int64_t tile_bytes = ir::DTypeBytes(source.tile_dtype);
  MW_CHECK(file_bytes > 0 && tile_bytes > 0) << "elements without a size";
  MW_CHECK(source.file_dtype || source.float8 != nullptr) << "a type that nobody reads";
  const bool same = source.file_dtype == source.tile_dtype;
  ForEachRun(box.sizes, box.strides, box.base,
             [&](int64_t to, int64_t from, int64_t count, int64_t stride) {
               if (same && stride == 1) {
                 std::memcpy(tile + to * tile_bytes, source.file + from * file_bytes,
                             static_cast<size_t>(count * tile_bytes));
                 return;
               }
               if (stride == 1 && ConvertedRun(source, source.file + from * file_bytes,
                                               tile + to * tile_bytes, count)) {
                 return;
               }
               for (int64_t i = 0; i < count; ++i) {
                 const std::byte* at = source.file + (from + i * stride) * file_bytes;
                 std::byte* out = tile + (to + i) * tile_bytes;
                 if (same) {
                   std::memcpy(out, at, static_cast<size_t>(tile_bytes));
                 } else {
                   // f64 passes through as it is, so a file of the graph's own type reads back
                   // bitwise.
                   ir::StoreElement(out, source.tile_dtype, source.Load(at));
                 }
               }
             });
}

// A run of a tile, in C order, and where it is in a tensor of the file.
struct PlacedRun {
  std::string tensor;
  SafetensorsWriter::StridedBox box;
  int64_t first = 0;  // in elements of the tile
  int64_t count = 0;
};

// The box of the logical tensor as strided boxes of the exported ones: one, or one of each tensor.
Result<std::vector<PlacedRun>> Place(const ExportLayout& layout, const ir::TensorType& logical,
                                     const ir::Box& box) {
  const ir::Dims& dims = logical.dims;
  ir::Box whole{ir::Dims(dims.size(), 0), dims};
  const bool all = box.offset.empty() && box.size.empty();
  const ir::Box& wanted = all ? whole : box;
  if (wanted.offset.size() != dims.size() || wanted.size.size() != dims.size()) {
    return Fail(InvalidArgument(fmt::format("param '{}' {}: a box of rank {}", layout.name,
                                            logical.ToString(), wanted.size.size())));
  }
  SafetensorsWriter::StridedBox placed{layout.base, wanted.size, layout.strides};
  for (size_t d = 0; d < dims.size(); ++d) {
    if (wanted.offset[d] < 0 || wanted.size[d] < 0 || wanted.offset[d] > dims[d] - wanted.size[d]) {
      return Fail(OutOfRange(fmt::format("param '{}' {}: box [{}:{}] leaves it", layout.name,
                                         logical.ToString(), fmt::join(wanted.offset, ","),
                                         fmt::join(wanted.size, ","))));
    }
    placed.base += wanted.offset[d] * layout.strides[d];
  }
  const int64_t elements = ir::TensorType{logical.dtype, wanted.size}.elements();
  if (layout.parts == 0) {
    std::vector<PlacedRun> runs;
    runs.push_back({layout.name, std::move(placed), 0, elements});
    return runs;
  }
  MW_CHECK(!dims.empty() && layout.parts == dims[0]) << "a tensor for each place of the first dim";
  placed.sizes.erase(placed.sizes.begin());
  placed.strides.erase(placed.strides.begin());
  const int64_t count = wanted.size[0] == 0 ? 0 : elements / wanted.size[0];
  std::vector<PlacedRun> runs;
  for (int64_t i = 0; i < wanted.size[0]; ++i) {
    runs.push_back({layout.NameOf(wanted.offset[0] + i), placed, i * count, count});
  }
  return runs;
}

// One of a param's forms in files: its attributes begin with this.
constexpr char kWritten[] = "export_";
constexpr char kReadToo[] = "stored_";

Result<std::vector<size_t>> ExportPermutation(const ir::Node& param, const std::string& form,
                                              size_t rank) {
  std::vector<size_t> perm(rank);
  for (size_t i = 0; i < rank; ++i) perm[i] = i;
  const std::vector<int64_t> given = param.attrs.Ints(form + "perm");
  if (given.empty()) return perm;
  std::vector<bool> seen(rank, false);
  bool valid = given.size() == rank;
  for (size_t i = 0; valid && i < rank; ++i) {
    valid = given[i] >= 0 && given[i] < static_cast<int64_t>(rank) &&
            !seen[static_cast<size_t>(given[i])];
    if (!valid) break;
    perm[i] = static_cast<size_t>(given[i]);
    seen[perm[i]] = true;
  }
  if (!valid) {
    return Fail(
        InvalidArgument(fmt::format("param '{}': {}perm [{}] is no permutation of {} dims",
                                    param.attrs.Str("name"), form, fmt::join(given, ","), rank)));
  }
  return perm;
}

// Some rows of a dim of a larger tensor.
Status PlaceRows(const ir::Node& param, const std::string& form, ExportLayout& layout) {
  const int64_t rows = param.attrs.Int(form + "rows");
  if (rows == 0) return OkStatus();
  const int64_t first = param.attrs.Int(form + "row");
  const int64_t step = param.attrs.Int(form + "step", 1);
  const int64_t dim = param.attrs.Int(form + "dim");
  ir::Dims& dims = layout.type.dims;
  const bool has_dim = dim >= 0 && dim < static_cast<int64_t>(dims.size());
  const int64_t had = has_dim ? dims[static_cast<size_t>(dim)] : 0;
  if (had < 1 || step < 1 || first < 0 || first + (had - 1) * step >= rows) {
    return InvalidArgument(fmt::format("param '{}' {}: no run of {} rows from {} on in dim {}",
                                       param.attrs.Str("name"), layout.type.ToString(), rows, first,
                                       dim));
  }
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(dim) + 1; d < dims.size(); ++d) inner *= dims[d];
  for (int64_t& stride : layout.strides) {
    if (stride >= inner * had) {
      stride = stride / had * rows;
    } else if (stride >= inner) {
      stride *= step;
    }
  }
  layout.base = first * inner;
  layout.whole = false;
  dims[static_cast<size_t>(dim)] = rows;
  return OkStatus();
}

// As files of BERT's first years call it: norms had a gamma and a beta. "": as today.
std::string OldName(const std::string& name) {
  constexpr std::string_view kNorm = "LayerNorm.";
  const size_t at = name.rfind(kNorm);
  if (at == std::string::npos) return "";
  const std::string_view what = std::string_view(name).substr(at + kNorm.size());
  if (what != "weight" && what != "bias") return "";
  return name.substr(0, at + kNorm.size()) + (what == "weight" ? "gamma" : "beta");
}

const SafetensorsEntry* FindExported(const SafetensorsFile& file, const std::string& name) {
  if (const SafetensorsEntry* entry = file.Find(name)) return entry;
  const size_t dot = name.find('.');
  return dot == std::string::npos ? nullptr : file.Find(std::string_view(name).substr(dot + 1));
}

// The tensor of the file that can be read as one of the layout's.
Result<const SafetensorsEntry*> FindReadable(const SafetensorsFile& file,
                                             const ExportLayout& layout, const std::string& name) {
  const SafetensorsEntry* entry = FindExported(file, name);
  const std::string old_name = OldName(name);
  if (entry == nullptr && !old_name.empty()) entry = FindExported(file, old_name);
  if (entry == nullptr) {
    return Fail(NotFound(
        fmt::format("{} has no tensor '{}' ({})", file.path(), name, layout.type.ToString())));
  }
  const ir::DType wanted = layout.type.dtype;
  const bool number = entry->dtype.has_value() ? IsFloating(*entry->dtype)
                                               : FindFloat8(entry->dtype_name) != nullptr;
  const bool convertible = number && ir::IsFloating(wanted);
  if (entry->shape != layout.type.dims || !(entry->dtype == wanted || convertible)) {
    return Fail(InvalidArgument(fmt::format("{}: tensor '{}' is {}[{}]; the model needs {}",
                                            file.path(), entry->name, entry->dtype_name,
                                            fmt::join(entry->shape, ","), layout.type.ToString())));
  }
  return entry;
}

}  // namespace

Status SafetensorsWriter::WriteStrided(std::string_view name, const StridedBox& box,
                                       std::span<const std::byte> bytes) {
  MW_ASSIGN_OR_RETURN(const size_t index, IndexOf(name));
  const SafetensorsEntry& entry = header_.entries[index];
  const int64_t element_bytes = ir::DTypeBytes(*entry.dtype);
  int64_t count = 1;
  int64_t last = box.base;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    count *= box.sizes[d];
    last += (box.sizes[d] - 1) * box.strides[d];
  }
  if (static_cast<int64_t>(bytes.size()) != count * element_bytes) {
    return InvalidArgument(
        fmt::format("tensor '{}': {} bytes for a tile of {} elements of {} bytes", name,
                    bytes.size(), count, element_bytes));
  }
  if (count == 0) return OkStatus();
  if (box.base < 0 || last >= (entry.end_bytes - entry.begin_bytes) / element_bytes) {
    return OutOfRange(fmt::format("tensor '{}' [{}]: the tile spans elements {}..{}", name,
                                  fmt::join(entry.shape, ","), box.base, last));
  }
  switch (element_bytes) {
    case 1:
      Scatter<uint8_t>(box, bytes.data(), data(index));
      break;
    case 2:
      Scatter<uint16_t>(box, bytes.data(), data(index));
      break;
    case 4:
      Scatter<uint32_t>(box, bytes.data(), data(index));
      break;
    default:
      Scatter<uint64_t>(box, bytes.data(), data(index));
      break;
  }
  written_bytes_[index] += static_cast<int64_t>(bytes.size());
  return OkStatus();
}

std::string ExportLayout::NameOf(int64_t part) const {
  if (parts == 0) return name;
  MW_CHECK(part >= 0 && part < parts) << "tensor " << part << " of " << parts;
  const size_t at = name.find(kPlace);
  return fmt::format("{}{}{}", name.substr(0, at), part, name.substr(at + kPlace.size()));
}

namespace {

Result<ExportLayout> LayoutOf(const ir::Node& param, const std::string& form,
                              const ir::TensorType& logical) {
  MW_CHECK(param.op == ir::Op::kParam) << "only params are exported";
  const size_t rank = logical.dims.size();
  ExportLayout layout;
  layout.name = param.attrs.Str(form + "name", param.attrs.Str("name"));
  if (layout.name.empty()) layout.name = param.attrs.Str("name");
  layout.type.dtype = logical.dtype;
  layout.strides.resize(rank);
  MW_ASSIGN_OR_RETURN(const std::vector<size_t> perm, ExportPermutation(param, form, rank));
  MW_CHECK(perm.size() == rank) << "a permutation of " << perm.size() << " dims for " << rank;
  if (layout.name.find(kPlace) != std::string::npos) {
    if (rank == 0 || perm[0] != 0 || logical.dims[0] < 1) {
      return Fail(
          InvalidArgument(fmt::format("param '{}' {}: its first dim does not number tensors",
                                      param.attrs.Str("name"), logical.ToString())));
    }
    layout.parts = logical.dims[0];
  }
  const size_t first = layout.parts > 0 ? 1 : 0;
  layout.type.dims.resize(rank - first);
  int64_t stride = 1;
  for (size_t j = rank; j-- > first;) {
    layout.strides[perm[j]] = stride;
    stride *= logical.dims[perm[j]];
    layout.type.dims[j - first] = logical.dims[perm[j]];
  }
  const ir::Dims shape = param.attrs.Ints(form + "shape");
  if (!shape.empty()) {
    const ir::TensorType reshaped{logical.dtype, shape};
    if (reshaped.elements() != layout.type.elements()) {
      return Fail(InvalidArgument(fmt::format("param '{}' {}: {}shape [{}] has {} elements, not {}",
                                              param.attrs.Str("name"), logical.ToString(), form,
                                              fmt::join(shape, ","), reshaped.elements(),
                                              layout.type.elements())));
    }
    layout.type = reshaped;
  }
  MW_TRY(PlaceRows(param, form, layout));
  return layout;
}

// The form in which the file has the param; where it has none, that which is written.
Result<ExportLayout> LayoutIn(const SafetensorsFile& file, const ir::Node& param,
                              const ir::TensorType& logical) {
  MW_ASSIGN_OR_RETURN(ExportLayout layout, LayoutOf(param, kWritten, logical));
  if (param.attrs.Str("stored_name", "").empty()) return layout;
  if (FindExported(file, layout.NameOf(0)) != nullptr) return layout;
  MW_ASSIGN_OR_RETURN(ExportLayout other, LayoutOf(param, kReadToo, logical));
  return FindExported(file, other.NameOf(0)) != nullptr ? other : layout;
}

}  // namespace

Result<ExportLayout> ExportLayoutOf(const ir::Node& param, const ir::TensorType& logical) {
  return LayoutOf(param, kWritten, logical);
}

Result<std::vector<TensorSpec>> TensorsOf(const std::vector<ExportLayout>& layouts) {
  std::vector<TensorSpec> tensors;
  std::map<std::string, size_t> places;
  for (const ExportLayout& layout : layouts) {
    for (int64_t part = 0; part < layout.tensors(); ++part) {
      const std::string name = layout.NameOf(part);
      const auto [place, is_new] = places.emplace(name, tensors.size());
      if (is_new) {
        tensors.push_back({name, layout.type});
      } else if (tensors[place->second].type != layout.type || layout.whole) {
        return Fail(InvalidArgument(fmt::format("two params are exported as '{}': {} and {}", name,
                                                tensors[place->second].type.ToString(),
                                                layout.type.ToString())));
      }
    }
  }
  return tensors;
}

Result<ir::TensorType> ExportType(const ir::Node& param, const ir::TensorType& logical) {
  MW_ASSIGN_OR_RETURN(ExportLayout layout, ExportLayoutOf(param, logical));
  return layout.type;
}

Status WriteLogicalTile(SafetensorsWriter& writer, const ir::Node& param,
                        const ir::TensorType& logical, const ir::Box& box,
                        std::span<const std::byte> bytes) {
  MW_ASSIGN_OR_RETURN(const ExportLayout layout, ExportLayoutOf(param, logical));
  MW_ASSIGN_OR_RETURN(const std::vector<PlacedRun> runs, Place(layout, logical, box));
  const auto element = static_cast<size_t>(ir::DTypeBytes(logical.dtype));
  int64_t wanted = 0;
  for (const PlacedRun& run : runs) wanted += run.count;
  if (bytes.size() != static_cast<size_t>(wanted) * element) {
    return InvalidArgument(fmt::format("param '{}': {} bytes for a tile of {} elements of {} bytes",
                                       layout.name, bytes.size(), wanted, element));
  }
  for (const PlacedRun& run : runs) {
    const auto of_run = bytes.subspan(static_cast<size_t>(run.first) * element,
                                      static_cast<size_t>(run.count) * element);
    MW_TRY(writer.WriteStrided(run.tensor, run.box, of_run));
  }
  return OkStatus();
}

namespace {

// A tile that has been found in a file.
struct FoundTile {
  ExportLayout layout;
  std::vector<PlacedRun> runs;
  size_t bytes = 0;
};

Result<FoundTile> FindTile(const SafetensorsFile& file, const ir::Node& param,
                           const ir::TensorType& logical, const ir::Box& box) {
  FoundTile found;
  MW_ASSIGN_OR_RETURN(found.layout, LayoutIn(file, param, logical));
  MW_ASSIGN_OR_RETURN(found.runs, Place(found.layout, logical, box));
  const auto element = static_cast<size_t>(ir::DTypeBytes(logical.dtype));
  for (const PlacedRun& run : found.runs) found.bytes += static_cast<size_t>(run.count) * element;
  return found;
}

Status ReadFound(const SafetensorsFile& file, const FoundTile& found, ir::DType dtype,
                 std::span<std::byte> into) {
  // All of them are found before anything is written: a tile is not left in part.
  std::vector<const SafetensorsEntry*> entries;
  for (const PlacedRun& run : found.runs) {
    MW_ASSIGN_OR_RETURN(const SafetensorsEntry* entry,
                        FindReadable(file, found.layout, run.tensor));
    entries.push_back(entry);
  }
  const auto element = static_cast<size_t>(ir::DTypeBytes(dtype));
  for (size_t i = 0; i < entries.size(); ++i) {
    const PlacedRun& run = found.runs[i];
    const TileSource source{file.data(*entries[i]).data(), entries[i]->dtype,
                            FindFloat8(entries[i]->dtype_name), dtype};
    Gather(run.box, source, into.data() + static_cast<size_t>(run.first) * element);
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<std::byte>> ReadLogicalTile(const SafetensorsFile& file, const ir::Node& param,
                                               const ir::TensorType& logical, const ir::Box& box) {
  MW_ASSIGN_OR_RETURN(const FoundTile found, FindTile(file, param, logical, box));
  std::vector<std::byte> tile(found.bytes);
  MW_TRY(ReadFound(file, found, logical.dtype, tile));
  return tile;
}

Status ReadLogicalTile(const SafetensorsFile& file, const ir::Node& param,
                       const ir::TensorType& logical, const ir::Box& box,
                       std::span<std::byte> into) {
  MW_ASSIGN_OR_RETURN(const FoundTile found, FindTile(file, param, logical, box));
  if (into.size() != found.bytes) {
    return InvalidArgument(fmt::format("param '{}': a tile of {} bytes is read into {}",
                                       found.layout.name, found.bytes, into.size()));
  }
  return ReadFound(file, found, logical.dtype, into);
}

bool MayBeDrawn(const ir::Node& param) { return param.attrs.Int(ir::kDrawnAttr) != 0; }

namespace {

Status CheckWeight(const SafetensorsFile& file, const ir::Node& param,
                   const ir::TensorType& logical) {
  MW_ASSIGN_OR_RETURN(const ExportLayout layout, LayoutIn(file, param, logical));
  for (int64_t part = 0; part < layout.tensors(); ++part) {
    const auto found = FindReadable(file, layout, layout.NameOf(part));
    if (found) continue;
    const bool drawn = MayBeDrawn(param) && found.error().code() == StatusCode::kNotFound;
    if (!drawn) return found.error();
  }
  return OkStatus();
}

}  // namespace

Status CheckWeights(const SafetensorsFile& file, const ir::Graph& graph) {
  for (NodeId id : graph.NodesOf(ir::Op::kParam)) {
    const ir::Node& param = graph.node(id);
    if (param.attrs.Int("kept") != 0) continue;
    MW_TRY(CheckWeight(file, param, graph.type(param.outputs[0])));
  }
  return OkStatus();
}

namespace {

// Bits of a float type behind the first one; none: it is no float.
std::optional<int> FractionBits(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF64:
      return 52;
    case ir::DType::kF32:
      return 23;
    case ir::DType::kF16:
      return 10;
    case ir::DType::kBF16:
      return 7;
    default:
      return std::nullopt;
  }
}

bool IsRounded(const SafetensorsEntry& entry, ir::DType to) {
  const auto had = entry.dtype ? FractionBits(*entry.dtype) : std::nullopt;
  const auto has = FractionBits(to);
  return had && has && *has < *had;
}

// The first ones by name, and how many more there are.
std::string NamesOf(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  const std::string more =
      names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "";
  return fmt::format("{}{}", fmt::join(first, ", "), more);
}

}  // namespace

std::vector<std::string> NotesOfWeights(const SafetensorsFile& file, const ir::Graph& graph) {
  std::vector<std::string> drawn;
  std::set<std::string> seen;  // several params may share a tensor
  std::set<std::string> read;
  std::map<std::pair<std::string, std::string>, int64_t> rounded;
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    const ir::Node& param = graph.node(id);
    if (param.attrs.Int("kept") != 0) continue;
    const ir::TensorType& logical = graph.type(param.outputs[0]);
    const auto layout = LayoutIn(file, param, logical);
    MW_CHECK(layout.has_value()) << layout.error();
    for (int64_t part = 0; part < layout->tensors(); ++part) {
      const std::string name = layout->NameOf(part);
      if (!seen.insert(name).second) continue;
      const auto found = FindReadable(file, *layout, name);
      if (found) read.insert((*found)->name);
      // Adapters are new unless their own file is named, which nobody wonders at.
      if (!found && param.attrs.Str(ir::kBesideAttr, "").empty()) drawn.push_back(name);
      if (!found || !IsRounded(**found, logical.dtype)) continue;
      ++rounded[{(*found)->dtype_name, std::string(ir::DTypeName(logical.dtype))}];
    }
  }
  std::vector<std::string> notes;
  if (!drawn.empty()) {
    notes.push_back(fmt::format("the weights have no {}: drawn anew", NamesOf(drawn)));
  }
  const std::vector<std::string> left = TensorsLeft(file, read);
  if (!left.empty()) {
    notes.push_back(fmt::format("the model has no place for {} of the weights' tensors: {}",
                                left.size(), NamesOf(left)));
  }
  for (const auto& [types, count] : rounded) {
    notes.push_back(fmt::format("{} of the weights' tensors are rounded from {} to {}", count,
                                types.first, types.second));
  }
  return notes;
}

}  // namespace meshwright::formats
