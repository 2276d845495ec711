// Images of files: what is read, how it is brought to another size, and the rows made of it.
#include "cli/image_rows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/image_file.h"
#include "data/describe.h"

// Needs the types of <cstdio> before it.
#include <jpeglib.h>

namespace meshwright::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Image Formula(int64_t height, int64_t width) {
  Image image{height, width, 3, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        image.pixels.push_back(static_cast<uint8_t>((x * 37 + y * 91 + c * 53 + x * y * 5) % 256));
      }
    }
  }
  return image;
}

std::string PngOf(const Image& image) {
  png_image png;
  std::memset(&png, 0, sizeof png);
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t bytes = 0;
  png_image_write_to_memory(&png, nullptr, &bytes, 0, image.pixels.data(), 0, nullptr);
  std::string text(bytes, '\0');
  png_image_write_to_memory(&png, text.data(), &bytes, 0, image.pixels.data(), 0, nullptr);
  text.resize(bytes);
  return text;
}

std::string JpegOf(const Image& image) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* bytes = nullptr;
  unsigned long count = 0;  // NOLINT(google-runtime-int): libjpeg's own type
  jpeg_mem_dest(&jpeg, &bytes, &count);
  jpeg.image_width = static_cast<JDIMENSION>(image.width);
  jpeg.image_height = static_cast<JDIMENSION>(image.height);
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  std::vector<uint8_t> pixels = image.pixels;
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = pixels.data() + jpeg.next_scanline * image.width * 3;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string text(reinterpret_cast<const char*>(bytes), count);
  jpeg_destroy_compress(&jpeg);
  std::free(bytes);
  return text;
}

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Image Flat(int64_t side, uint8_t value) {
  Image image{side, side, 3, {}};
  image.pixels.assign(static_cast<size_t>(side * side * 3), value);
  return image;
}

TEST(DecodeImage, APngIsReadAsItIs) {
  const Image image = Formula(5, 7);
  const auto read = DecodeImage(BytesOf(PngOf(image)), 3);
  ASSERT_TRUE(read.has_value()) << read.error();
  EXPECT_EQ(read->height, 5);
  EXPECT_EQ(read->width, 7);
  EXPECT_EQ(read->pixels, image.pixels);
  const auto grey = DecodeImage(BytesOf(PngOf(Flat(4, 99))), 1);
  ASSERT_TRUE(grey.has_value()) << grey.error();
  EXPECT_EQ(grey->pixels, std::vector<uint8_t>(16, 99));
}

TEST(DecodeImage, AJpegIsReadNearly) {
  const auto read = DecodeImage(BytesOf(JpegOf(Flat(16, 120))), 3);
  ASSERT_TRUE(read.has_value()) << read.error();
  EXPECT_EQ(read->height, 16);
  for (const uint8_t pixel : read->pixels) EXPECT_NEAR(pixel, 120, 2);
}

TEST(DecodeImage, WhatIsDamagedIsRefused) {
  for (const std::string& whole : {PngOf(Formula(9, 9)), JpegOf(Formula(32, 32))}) {
    for (size_t bytes = 0; bytes < whole.size(); bytes += 7) {
      const std::string part = whole.substr(0, bytes);
      const auto read = DecodeImage(BytesOf(part), 3);
      // The last bytes of a file are no pixels.
      if (bytes + 24 < whole.size()) {
        EXPECT_FALSE(read.has_value()) << bytes;
      }
    }
  }
  EXPECT_THAT(DecodeImage(BytesOf("GIF89a"), 3).error().message(), HasSubstr("neither a PNG"));
}

// Numbers of Pillow 12's Image.resize with BILINEAR.
TEST(Resized, IsThatOfPillow) {
  const Image image = Formula(5, 7);
  EXPECT_EQ(Resized(image, 2, 3).pixels,
            (std::vector<uint8_t>{103, 131, 141, 119, 123, 138, 123, 124, 117, 119, 130, 124, 121,
                                  122, 121, 121, 130, 129}));
  const Image large = Resized(image, 9, 4);
  EXPECT_EQ(std::vector<uint8_t>(large.pixels.begin(), large.pixels.begin() + 24),
            (std::vector<uint8_t>{19, 72,  125, 77,  130, 183, 145, 198, 200, 203, 122, 65,
                                  50, 103, 152, 111, 140, 149, 120, 150, 169, 157, 121, 100}));
  EXPECT_EQ(large.pixels.back(), 136);
  EXPECT_EQ(Resized(image, 5, 7).pixels, image.pixels);
}

class ImageRowsTest : public ::testing::Test {
 protected:
  static models::ModelRows Rows(std::vector<std::string> names = {}) {
    return {.kind = models::SampleKind::kImage,
            .labels = 2,
            .label_names = std::move(names),
            .channels = 3,
            .image = 2};
  }

  void Write(const std::string& name, const Image& image) {
    const std::string path = dir_.File(name);
    ASSERT_TRUE(MakeDirs(std::filesystem::path(path).parent_path().string()).ok());
    ASSERT_TRUE(WriteFileAtomic(path, PngOf(image)).ok());
  }

  static std::vector<int32_t> LabelsOf(const std::vector<LabelledImage>& images) {
    std::vector<int32_t> labels;
    for (const LabelledImage& image : images) labels.push_back(image.label);
    return labels;
  }

  const TempDir dir_ = TempDir::Make("mw-images").value();
};

TEST_F(ImageRowsTest, AFolderIsAClass) {
  Write("all/owl/b.png", Flat(3, 1));
  Write("all/owl/a.png", Flat(3, 2));
  Write("all/cat/c.PNG", Flat(3, 3));
  Write("all/cat/.hidden.png", Flat(3, 3));
  ASSERT_TRUE(WriteFileAtomic(dir_.File("all/cat/readme.txt"), "x").ok());
  const auto images = ImagesOfFolder(dir_.File("all"), Rows());
  ASSERT_TRUE(images.has_value()) << images.error();
  EXPECT_THAT(LabelsOf(*images), ElementsAre(0, 1, 1)) << "in the order of names: cat, owl";
  EXPECT_THAT((*images)[1].path, HasSubstr("owl/a.png"));
  const auto named = ImagesOfFolder(dir_.File("all"), Rows({"owl", "cat"}));
  ASSERT_TRUE(named.has_value()) << named.error();
  EXPECT_THAT(LabelsOf(*named), ElementsAre(1, 0, 0)) << "the model says which is which";
  EXPECT_THAT(ImagesOfFolder(dir_.File("all"), Rows({"owl", "dog"})).error().message(),
              HasSubstr("the folder 'cat' is no class of the model, which has 2: owl, dog"));
  Write("all/rat/d.png", Flat(3, 3));
  EXPECT_THAT(ImagesOfFolder(dir_.File("all"), Rows()).error().message(),
              HasSubstr("the folder 'rat' is no class of the model, which has 2; "));
  EXPECT_THAT(ImagesOfFolder(dir_.File("all/cat"), Rows()).error().message(),
              HasSubstr("it needs one for each class"));
  EXPECT_EQ(ImagesOfFolder(dir_.File("none"), Rows()).error().code(), StatusCode::kNotFound);
}

TEST_F(ImageRowsTest, ClassesAreCalledAsTheirFolders) {
  Write("all/owl/b.png", Flat(3, 1));
  Write("all/cat/c.png", Flat(3, 3));
  config::JobConfig config;
  config.model.name = "vit";
  config.model.labels = 2;
  config.dataset_format = "images";
  config.dataset_path = dir_.File("all");
  auto prepared = config::PrepareJob(config);
  ASSERT_TRUE(prepared.has_value()) << prepared.error();
  EXPECT_THAT(prepared->model.hf_config, HasSubstr("LABEL_1"));
  EXPECT_EQ(prepared->request.train.sequence, 1) << "an image is one label, not seq_len tokens";
  ASSERT_TRUE(NameClasses(prepared->model, config));
  EXPECT_THAT(config.model.label_names, ElementsAre("cat", "owl"));
  // They stand in what the controller keeps, of which a folder for transformers is made.
  prepared = config::PrepareJob(config);
  ASSERT_TRUE(prepared.has_value()) << prepared.error();
  EXPECT_THAT(prepared->request.config_text, HasSubstr("label_names = ["));
  const auto json = nlohmann::json::parse(prepared->model.hf_config);
  EXPECT_EQ(json["id2label"]["1"], "owl");
  EXPECT_EQ(json["label2id"]["cat"], 0);
  EXPECT_FALSE(NameClasses(prepared->model, config)) << "they have names";
  config.model.label_names = {"v1.0", "v2.0"};
  const auto dotted = nlohmann::json::parse(config::PrepareJob(config)->model.hf_config);
  EXPECT_EQ(dotted["label2id"]["v2.0"], 1);
  config.model.label_names = {"cat", "cat"};
  EXPECT_THAT(config::PrepareJob(config).error().message(), HasSubstr("1 of them distinct"));
  config.model.label_names.clear();
  config.model.labels = 3;
  EXPECT_FALSE(NameClasses(config::PrepareJob(config)->model, config)) << "of three classes";
  config.dataset_path = dir_.File("none");
  EXPECT_FALSE(NameClasses(prepared->model, config));
}

TEST_F(ImageRowsTest, ALineNamesAnImageBesideIt) {
  const std::string file = dir_.File("in/list.jsonl");
  ASSERT_TRUE(MakeDirs(dir_.File("in")).ok());
  const auto of = [&](const std::string& text, std::vector<std::string> names = {}) {
    EXPECT_TRUE(WriteFileAtomic(file, text).ok());
    return ImagesOfLines({file}, Rows(std::move(names)));
  };
  const auto images =
      of("{\"image\": \"x/a.png\", \"label\": 1}\n\n"
         "{\"image\": \"/b.png\", \"label\": \"bad\"}\n",
         {"bad", "good"});
  ASSERT_TRUE(images.has_value()) << images.error();
  EXPECT_THAT(LabelsOf(*images), ElementsAre(1, 0));
  EXPECT_EQ((*images)[0].path, dir_.File("in/x/a.png"));
  EXPECT_EQ((*images)[1].path, "/b.png");
  EXPECT_THAT(of("{\"image\": \"a\", \"label\": 2}").error().message(),
              HasSubstr("JSON at line 1: \"label\" is 2; it must be a number from 0 to 1"));
  EXPECT_THAT(of("\n{\"label\": 0}").error().message(),
              HasSubstr("JSON at line 2: has no \"image\", a path"));
}

TEST_F(ImageRowsTest, WhatIsAskedAboutNeedsNoLabel) {
  Write("all/owl/b.png", Flat(3, 1));
  Write("all/c.png", Flat(3, 1));
  const auto images = ImagesAt({dir_.File("all"), dir_.File("all/c.png")});
  ASSERT_TRUE(images.has_value()) << images.error();
  ASSERT_EQ(images->size(), 3u);
  EXPECT_THAT((*images)[0].path, HasSubstr("all/c.png"));
  EXPECT_THAT((*images)[1].path, HasSubstr("owl/b.png"));
  models::ModelRows rows = Rows();
  rows.asks = true;
  const std::string file = dir_.File("list.jsonl");
  ASSERT_TRUE(WriteFileAtomic(file, "{\"image\": \"all/c.png\"}\n").ok());
  EXPECT_EQ(ImagesOfLines({file}, rows).value().size(), 1u);
  EXPECT_FALSE(ImagesOfLines({file}, Rows()).has_value());
}

TEST_F(ImageRowsTest, RowsAreMadeOnceAndAnewWhereAnImageChanges) {
  Write("all/a/1.png", Flat(8, 10));
  Write("all/b/2.png", Flat(2, 200));
  const auto make = [&] {
    const auto images = ImagesOfFolder(dir_.File("all"), Rows());
    EXPECT_TRUE(images.has_value()) << images.error();
    return MakeImageRows(*images, Rows(), dir_.File("cache"));
  };
  const auto first = make();
  ASSERT_TRUE(first.has_value()) << first.error();
  EXPECT_TRUE(first->made);
  const auto stream =
      data::DescribeFiles({.format = "npy",
                           .paths = {"pixels=" + first->pixels, "label=" + first->labels},
                           .validation_fraction = 0});
  ASSERT_TRUE(stream.has_value()) << stream.error();
  ASSERT_EQ(stream->fields.size(), 2u);
  const std::string pixels = ReadFile(first->pixels).value();
  std::string wanted(12, '\x0a');
  wanted.append(12, '\xc8');
  EXPECT_EQ(pixels.substr(pixels.size() - 24), wanted);
  EXPECT_FALSE(make()->made);
  Write("all/b/2.png", Flat(5, 7));
  const auto again = make();
  ASSERT_TRUE(again.has_value()) << again.error();
  EXPECT_TRUE(again->made);
  EXPECT_NE(again->pixels, first->pixels);
  ASSERT_TRUE(WriteFileAtomic(dir_.File("all/b/2.png"), "no image").ok());
  EXPECT_THAT(make().error().message(), HasSubstr("all/b/2.png: is neither a PNG nor a JPEG"));
}

}  // namespace
}  // namespace meshwright::cli
