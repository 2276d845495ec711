#include "cli/image_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json_int.h"
#include "base/parallel.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/image_file.h"
#include "cli/token_files.h"
#include "data/describe.h"
#include "data/npy_header.h"
#include "data/paths.h"

namespace meshwright::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kImagesMadeBy = "image rows 1";  // another number: rows are made otherwise
constexpr size_t kImageNameLength = 40;
constexpr size_t kImagesAtOnce = 256;

bool IsImage(const fs::path& path) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return end == ".png" || end == ".jpg" || end == ".jpeg";
}

// What is in a folder, by name.
Result<std::vector<fs::path>> Entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.path().filename().string().starts_with(".")) paths.push_back(entry.path());
  }
  if (error) {
    return Fail(NotFound(fmt::format("read the folder {}: {}", folder.string(), error.message())));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::optional<int32_t> LabelNamed(const models::ModelRows& rows, const std::string& name) {
  const auto found = std::find(rows.label_names.begin(), rows.label_names.end(), name);
  if (found == rows.label_names.end()) return std::nullopt;
  return static_cast<int32_t>(found - rows.label_names.begin());
}

Result<int32_t> LabelOfLine(const nlohmann::json& label, const models::ModelRows& rows) {
  const auto number = FindJsonInt(label, int32_t{0});
  if (number && *number < rows.labels) return *number;
  if (label.is_string()) {
    if (const auto named = LabelNamed(rows, label.get<std::string>())) return *named;
  }
  return Fail(InvalidArgument(fmt::format(
      "\"label\" is {}; it must be a number from 0 to {}{}",
      label.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), rows.labels - 1,
      rows.label_names.empty() ? "" : ", or a name of the model's id2label")));
}

Result<LabelledImage> ImageOfLine(const std::string& line, const std::string& folder,
                                  const models::ModelRows& rows) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return Fail(InvalidArgument("is no JSON object"));
  const auto image = object.find("image");
  const auto label = object.find("label");
  const bool labelled = label != object.end();
  if (image == object.end() || !image->is_string() || (!labelled && !rows.asks)) {
    return Fail(InvalidArgument("has no \"image\", a path, and \"label\""));
  }
  int32_t number = 0;
  if (labelled && !rows.asks) {
    MW_ASSIGN_OR_RETURN(number, LabelOfLine(*label, rows));
  }
  const fs::path path(image->get<std::string>());
  return LabelledImage{path.is_absolute() ? path.string() : (fs::path(folder) / path).string(),
                       number};
}

// [channels, side, side] of one image.
Status FillPixels(const LabelledImage& image, const models::ModelRows& rows, std::span<char> to) {
  MW_ASSIGN_OR_RETURN(const MemoryMappedFile file, MemoryMappedFile::Open(image.path));
  auto decoded =
      DecodeImage(std::as_bytes(std::span(file.text().data(), file.text().size())), rows.channels);
  if (!decoded.has_value()) return decoded.error().WithContext(image.path);
  const Image brought = Resized(*decoded, rows.image, rows.image);
  size_t at = 0;
  for (int64_t c = 0; c < rows.channels; ++c) {
    for (int64_t y = 0; y < rows.image; ++y) {
      for (int64_t x = 0; x < rows.image; ++x) to[at++] = static_cast<char>(brought.at(y, x, c));
    }
  }
  return OkStatus();
}

Status WritePixels(const std::vector<LabelledImage>& images, const models::ModelRows& rows,
                   const std::string& path) {
  const auto row = static_cast<size_t>(rows.channels * rows.image * rows.image);
  MW_ASSIGN_OR_RETURN(const std::string header,
                      data::MakeNpyHeader(ir::Element::kU8, {std::ssize(images), rows.channels,
                                                             rows.image, rows.image}));
  const std::string part = path + ".part";
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  out << header;
  std::string block;
  for (size_t begin = 0; begin < images.size() && out; begin += kImagesAtOnce) {
    const size_t count = std::min(kImagesAtOnce, images.size() - begin);
    block.assign(count * row, '\0');
    std::vector<Status> failed(count);
    ParallelItems(static_cast<int64_t>(count), 1, [&](int64_t item) {
      const auto i = static_cast<size_t>(item);
      failed[i] = FillPixels(images[begin + i], rows, std::span(block).subspan(i * row, row));
    });
    for (const Status& status : failed) {
      if (status.ok()) continue;
      std::error_code ignored;
      fs::remove(part, ignored);
      return status;
    }
    out.write(block.data(), static_cast<std::streamsize>(block.size()));
  }
  out.close();
  std::error_code error;
  if (out) fs::rename(part, path, error);
  if (out && !error) return OkStatus();
  return Unavailable(fmt::format("write {}: {}", part, error ? error.message() : "no room"));
}

Status WriteLabels(const std::vector<LabelledImage>& images, const std::string& path) {
  MW_ASSIGN_OR_RETURN(std::string bytes,
                      data::MakeNpyHeader(ir::Element::kI32, {std::ssize(images)}));
  for (const LabelledImage& image : images) {
    const size_t at = bytes.size();
    bytes.append(sizeof image.label, '\0');
    std::memcpy(bytes.data() + at, &image.label, sizeof image.label);
  }
  return WriteFileAtomic(path, bytes);
}

// Of paths, sizes and times: reading all images would take as long as making the rows.
Result<std::string> IdentityOf(const std::vector<LabelledImage>& images,
                               const models::ModelRows& rows) {
  Sha256 hash;
  hash.Update(fmt::format("{}\n{} {}\n", kImagesMadeBy, rows.channels, rows.image));
  for (const LabelledImage& image : images) {
    std::error_code error;
    const auto bytes = fs::file_size(image.path, error);
    const auto time = error ? fs::file_time_type() : fs::last_write_time(image.path, error);
    if (error) return Fail(NotFound(fmt::format("{}: {}", image.path, error.message())));
    hash.Update(fmt::format("{} {} {} {}\n", image.path, image.label, bytes,
                            time.time_since_epoch().count()));
  }
  return hash.HexDigest().substr(0, kImageNameLength);
}

bool AreUnnamed(const models::ModelRows& rows) {
  return std::all_of(rows.label_names.begin(), rows.label_names.end(),
                     [](const std::string& label) { return label.starts_with("LABEL_"); });
}

// Of a folder without one the model's classes are numbers, in the order of names.
Result<int32_t> LabelOfFolder(const fs::path& folder, size_t place, const models::ModelRows& rows) {
  const std::string name = folder.filename().string();
  if (const auto named = LabelNamed(rows, name)) return *named;
  const bool numbered = AreUnnamed(rows);
  if (numbered && static_cast<int64_t>(place) < rows.labels) return static_cast<int32_t>(place);
  return Fail(InvalidArgument(fmt::format(
      "the folder '{}' is no class of the model, which has {}{}; a folder is a class, so rename it "
      "or set model.n_labels",
      name, rows.labels, numbered ? "" : ": " + Join(rows.label_names, ", "))));
}

}  // namespace

Result<std::vector<LabelledImage>> ImagesOfFolder(const std::string& folder,
                                                  const models::ModelRows& rows) {
  MW_ASSIGN_OR_RETURN(const std::vector<fs::path> classes, Entries(folder));
  std::vector<LabelledImage> images;
  size_t place = 0;
  for (const fs::path& name : classes) {
    std::error_code error;
    if (!fs::is_directory(name, error)) continue;
    MW_ASSIGN_OR_RETURN(const int32_t label, LabelOfFolder(name, place++, rows));
    MW_ASSIGN_OR_RETURN(const std::vector<fs::path> files, Entries(name));
    for (const fs::path& file : files) {
      if (IsImage(file)) images.push_back({file.string(), label});
    }
  }
  if (!images.empty()) return images;
  return Fail(InvalidArgument(fmt::format(
      "{} has no folder with a .png, .jpg or .jpeg; it needs one for each class", folder)));
}

Result<std::vector<LabelledImage>> ImagesAt(const std::vector<std::string>& paths) {
  std::vector<LabelledImage> images;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      images.push_back({path, 0});
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
      if (IsImage(entry.path())) found.push_back(entry.path().string());
    }
    std::sort(found.begin(), found.end());
    for (std::string& file : found) images.push_back({std::move(file), 0});
  }
  if (!images.empty()) return images;
  return Fail(
      InvalidArgument(fmt::format("{} has no .png, .jpg or .jpeg", paths.empty() ? "" : paths[0])));
}

Result<std::vector<LabelledImage>> ImagesOfLines(const std::vector<std::string>& files,
                                                 const models::ModelRows& rows) {
  std::vector<LabelledImage> images;
  for (const std::string& file : files) {
    MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
    const std::string folder = fs::path(file).parent_path().string();
    int64_t number = 0;
    for (const std::string& line : Split(text, '\n')) {
      ++number;
      if (Trim(line).empty()) continue;
      auto image = ImageOfLine(line, folder, rows);
      if (!image.has_value()) {
        return Fail(image.error().WithContext(fmt::format("{}: JSON at line {}", file, number)));
      }
      images.push_back(*std::move(image));
    }
  }
  if (images.empty()) return Fail(InvalidArgument("there is no line of JSON"));
  return images;
}

Result<ImageRows> MakeImageRows(const std::vector<LabelledImage>& images,
                                const models::ModelRows& rows, const std::string& cache) {
  MW_CHECK(!images.empty()) << "rows of no images";
  MW_TRY(MakeDirs(cache));
  MW_ASSIGN_OR_RETURN(const std::string name, IdentityOf(images, rows));
  ImageRows made{fmt::format("{}/{}-pixels.npy", cache, name),
                 fmt::format("{}/{}-label.npy", cache, name)};
  if (FileExists(made.pixels) && FileExists(made.labels)) return made;
  MW_TRY(WritePixels(images, rows, made.pixels));
  MW_TRY(WriteLabels(images, made.labels));
  made.made = true;
  return made;
}

namespace {

// A part that is held out is the end of the rows, and folders come one behind the other: so that
// all classes are in it, images are mixed, in the same order each time.
void Mix(std::vector<LabelledImage>& images) {
  std::mt19937_64 draws(images.size());
  for (size_t i = images.size(); i > 1; --i) std::swap(images[i - 1], images[draws() % i]);
}

// "; classes: 0 cats, 1 dogs" where folders are classes; "" of lines.
std::string ClassesText(const std::vector<LabelledImage>& images) {
  std::map<int32_t, std::string> names;
  for (const LabelledImage& image : images) {
    const std::string name = fs::path(image.path).parent_path().filename().string();
    const auto [it, is_new] = names.emplace(image.label, name);
    if (!is_new && it->second != name) return "";
  }
  std::string text;
  for (const auto& [label, name] : names) {
    text += fmt::format("{}{} {}", text.empty() ? "; classes: " : ", ", label, name);
  }
  return text;
}

// The arrays of one path, as DescribeFiles takes them.
Result<std::vector<std::string>> ArraysOfPath(const config::JobConfig& config,
                                              const models::ModelRows& rows, const char* key,
                                              const std::string& path) {
  const std::string said = fmt::format("{} = \"{}\"", key, path);
  auto images = [&]() -> Result<std::vector<LabelledImage>> {
    if (config.dataset_format == "images") {
      return ImagesOfFolder(data::ResolvePath(path, config.folder), rows);
    }
    MW_ASSIGN_OR_RETURN(const auto files, data::ExpandPath(path, config.folder, ""));
    return ImagesOfLines(files, rows);
  }();
  if (!images.has_value()) return Fail(images.error().WithContext(said));
  if (config.dataset_format == "images") Mix(*images);
  const std::string beside = data::ResolvePath(path, config.folder);
  const auto made = MakeImageRows(*images, rows, TokenCacheOf(beside));
  if (!made.has_value()) return Fail(made.error().WithContext(said));
  if (made->made)
    fmt::print(stderr, "{}: {} images read{}\n", said, images->size(), ClassesText(*images));
  return std::vector<std::string>{"pixels=" + made->pixels, "label=" + made->labels};
}

}  // namespace

bool NameClasses(const models::Model& model, config::JobConfig& config) {
  const bool asked = model.rows.kind == models::SampleKind::kImage &&
                     config.dataset_format == "images" && !config.dataset_path.empty();
  if (!asked || !config.model.label_names.empty() || !AreUnnamed(model.rows)) return false;
  // What is wrong with the folder is said where its images are read.
  const auto folders = Entries(data::ResolvePath(config.dataset_path, config.folder));
  if (!folders.has_value()) return false;
  std::vector<std::string> names;
  for (const fs::path& folder : *folders) {
    std::error_code error;
    const std::string name = folder.filename().string();
    if (!fs::is_directory(folder, error)) continue;
    if (!IsPrintable(name)) return false;
    names.push_back(name);
  }
  if (std::ssize(names) != model.rows.labels) return false;
  config.model.label_names = std::move(names);
  return true;
}

Result<ir::DataStream> FindImages(const config::JobConfig& config, const models::Model& model) {
  if (config.dataset_path.empty()) {
    return Fail(InvalidArgument(
        "training.dataset_path is empty; name a folder of images by class, or a file of lines"));
  }
  data::FilesRequest request;
  request.format = "npy";
  MW_ASSIGN_OR_RETURN(request.paths, ArraysOfPath(config, model.rows, "training.dataset_path",
                                                  config.dataset_path));
  if (!config.validation_path.empty()) {
    MW_ASSIGN_OR_RETURN(
        request.validation_paths,
        ArraysOfPath(config, model.rows, "validation.dataset_path", config.validation_path));
  }
  request.validation_fraction = config.data.validation_fraction;
  return data::DescribeFiles(request);
}

}  // namespace meshwright::cli
