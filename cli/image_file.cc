#include "cli/image_file.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "base/check.h"

// Needs the types of <cstdio> before it.
#include <jpeglib.h>

namespace meshwright::cli {
namespace {

Status CheckSides(int64_t height, int64_t width) {
  const bool fits = height > 0 && width > 0 && height <= kMostImageSide &&
                    width <= kMostImageSide && height * width <= kMostImagePixels;
  if (fits) return OkStatus();
  return InvalidArgument(
      fmt::format("the image is {} x {} pixels; at most {} of a side and {} are "
                  "read",
                  width, height, kMostImageSide, kMostImagePixels));
}

Image Empty(int64_t height, int64_t width, int64_t channels) {
  Image image{height, width, channels, {}};
  image.pixels.resize(static_cast<size_t>(height * width * channels));
  return image;
}

Result<Image> DecodePng(std::span<const std::byte> file, int64_t channels) {
  png_image png;
  std::memset(&png, 0, sizeof png);
  png.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> end(&png, png_image_free);
  if (png_image_begin_read_from_memory(&png, file.data(), file.size()) == 0) {
    return Fail(InvalidArgument(fmt::format("damaged PNG: {}", png.message)));
  }
  MW_TRY(CheckSides(png.height, png.width));
  png.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  Image image = Empty(png.height, png.width, channels);
  const png_color black = {0, 0, 0};
  if (png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr) == 0) {
    return Fail(InvalidArgument(fmt::format("damaged PNG: {}", png.message)));
  }
  return image;
}

// libjpeg leaves by a jump where something is wrong.
struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg knows only this
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX] = {};
};

void LeaveJpeg(j_common_ptr jpeg) {
  auto* const errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  jpeg->err->format_message(jpeg, errors->message);
  std::longjmp(errors->back, 1);
}

void SayNothing(j_common_ptr) {}

// Nothing with a destructor is made between the mark and the jump. Returns whether it went well.
bool ReadJpegHeader(jpeg_decompress_struct& jpeg, JpegErrors& errors) {
  if (setjmp(errors.back) != 0) return false;
  return jpeg_read_header(&jpeg, TRUE) == JPEG_HEADER_OK;
}

bool ReadJpegRows(jpeg_decompress_struct& jpeg, JpegErrors& errors, uint8_t* pixels,
                  size_t row_bytes) {
  if (setjmp(errors.back) != 0) return false;
  jpeg_start_decompress(&jpeg);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels + jpeg.output_scanline * row_bytes;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

Result<Image> DecodeJpeg(std::span<const std::byte> file, int64_t channels) {
  jpeg_decompress_struct jpeg;
  std::memset(&jpeg, 0, sizeof jpeg);
  JpegErrors errors;
  jpeg.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = LeaveJpeg;
  errors.manager.output_message = SayNothing;
  jpeg_create_decompress(&jpeg);
  const std::unique_ptr<jpeg_decompress_struct, void (*)(jpeg_decompress_struct*)> end(
      &jpeg, jpeg_destroy_decompress);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  const auto damaged = [&] {
    return Fail(InvalidArgument(fmt::format("damaged JPEG: {}", errors.message)));
  };
  if (!ReadJpegHeader(jpeg, errors)) return damaged();
  MW_TRY(CheckSides(jpeg.image_height, jpeg.image_width));
  jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  Image image = Empty(jpeg.image_height, jpeg.image_width, channels);
  const size_t row_bytes = static_cast<size_t>(image.width * channels);
  if (!ReadJpegRows(jpeg, errors, image.pixels.data(), row_bytes)) return damaged();
  // A file that ends too early is filled up with grey, and counted as a warning.
  if (errors.manager.num_warnings > 0) {
    jpeg.err->format_message(reinterpret_cast<j_common_ptr>(&jpeg), errors.message);
    return damaged();
  }
  return image;
}

bool BeginsWith(std::span<const std::byte> file, std::initializer_list<unsigned char> bytes) {
  if (file.size() < bytes.size()) return false;
  return std::equal(bytes.begin(), bytes.end(), file.begin(),
                    [](unsigned char a, std::byte b) { return std::byte{a} == b; });
}

// What a pixel of the target is made of: pixels of the source from `first` on, by weights whose sum
// is 1.
struct Sources {
  int64_t first = 0;
  std::vector<double> weights;
};

std::vector<Sources> SourcesOf(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(scale, 1.0);
  std::vector<Sources> all;
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(center - reach + 0.5));
    const auto last = std::min<int64_t>(from, static_cast<int64_t>(center + reach + 0.5));
    Sources sources{first, {}};
    double sum = 0;
    for (int64_t x = first; x < last; ++x) {
      const double away = std::abs((static_cast<double>(x) - center + 0.5) / reach);
      sources.weights.push_back(away < 1 ? 1 - away : 0);
      sum += sources.weights.back();
    }
    for (double& weight : sources.weights) weight /= sum;
    all.push_back(std::move(sources));
  }
  return all;
}

uint8_t Rounded(double value) {
  return static_cast<uint8_t>(std::clamp(std::floor(value + 0.5), 0.0, 255.0));
}

// Lines of `length` pixels, `step` apart, become lines of other pixels: along rows and columns.
Image Along(const Image& image, bool rows, int64_t to) {
  const std::vector<Sources> sources = SourcesOf(rows ? image.width : image.height, to);
  Image made =
      rows ? Empty(image.height, to, image.channels) : Empty(to, image.width, image.channels);
  size_t at = 0;
  for (int64_t y = 0; y < made.height; ++y) {
    for (int64_t x = 0; x < made.width; ++x) {
      const Sources& of = sources[static_cast<size_t>(rows ? x : y)];
      for (int64_t c = 0; c < made.channels; ++c) {
        double sum = 0;
        for (size_t i = 0; i < of.weights.size(); ++i) {
          const int64_t from = of.first + static_cast<int64_t>(i);
          sum += of.weights[i] * (rows ? image.at(y, from, c) : image.at(from, x, c));
        }
        made.pixels[at++] = Rounded(sum);
      }
    }
  }
  return made;
}

}  // namespace

Result<Image> DecodeImage(std::span<const std::byte> file, int64_t channels) {
  MW_CHECK(channels == 1 || channels == 3) << channels << " channels";
  if (BeginsWith(file, {0x89, 'P', 'N', 'G'})) return DecodePng(file, channels);
  if (BeginsWith(file, {0xFF, 0xD8, 0xFF})) return DecodeJpeg(file, channels);
  return Fail(InvalidArgument("is neither a PNG nor a JPEG"));
}

Image Resized(const Image& image, int64_t height, int64_t width) {
  MW_CHECK(height > 0 && width > 0) << height << " x " << width;
  const Image wide = width == image.width ? image : Along(image, true, width);
  return height == wide.height ? wide : Along(wide, false, height);
}

}  // namespace meshwright::cli
