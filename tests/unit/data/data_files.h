// Files for tests of data: written below a temporary folder, read back as rows.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/describe.h"
#include "data/roots.h"
#include "data/source.h"

namespace meshwright::data {

// Bytes of hex digits, as `xxd -p` prints them.
inline std::string FromHex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

inline std::span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class DataFilesTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = dir_.File(name);
    EXPECT_TRUE(MakeDirs(std::filesystem::path(path).parent_path().string()).ok());
    // Nothing here outlives a power cut.
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  template <typename T>
  std::string WriteTokens(const std::string& name, const std::vector<T>& tokens) {
    return Write(
        name, std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(T)));
  }
  // begin, begin + 1, ...
  std::string WriteCounting(const std::string& name, int64_t tokens, uint32_t begin = 0) {
    std::vector<uint32_t> values(static_cast<size_t>(tokens));
    std::iota(values.begin(), values.end(), begin);
    return WriteTokens(name, values);
  }

  // The stream of one file.
  ir::DataStream Describe(const std::string& format, std::vector<std::string> paths,
                          double fraction = 0, std::vector<std::string> validation = {}) {
    FilesRequest request;
    request.format = format;
    request.paths = std::move(paths);
    request.validation_paths = std::move(validation);
    request.validation_fraction = fraction;
    auto stream = DescribeFiles(request);
    EXPECT_TRUE(stream.has_value()) << stream.error();
    return stream.value_or(ir::DataStream());
  }
  std::string DescribeFails(const std::string& format, std::vector<std::string> paths,
                            StatusCode code = StatusCode::kInvalidArgument) {
    FilesRequest request;
    request.format = format;
    request.paths = std::move(paths);
    const auto stream = DescribeFiles(request);
    EXPECT_FALSE(stream.has_value());
    if (stream.has_value()) return "";
    EXPECT_EQ(stream.error().code(), code);
    return stream.error().message();
  }

  static std::unique_ptr<Source> Open(ir::DataStream stream, const StreamOptions& options) {
    ir::DataSpec spec;
    spec.streams = {std::move(stream)};
    auto source = Source::Open(spec, options, OpenLocal);
    EXPECT_TRUE(source.has_value()) << source.error();
    return source.has_value() ? std::move(*source) : nullptr;
  }
  static std::string OpenFails(ir::DataStream stream, const StreamOptions& options) {
    ir::DataSpec spec;
    spec.streams = {std::move(stream)};
    const auto source = Source::Open(spec, options, OpenLocal);
    EXPECT_FALSE(source.has_value());
    return source.has_value() ? "" : source.error().message();
  }

  template <typename T>
  static std::vector<T> Row(Source& source, const std::string& feed, int64_t sample,
                            size_t elements, ir::DType dtype) {
    std::vector<T> row(elements);
    const Status status =
        source.Read(feed, sample, {dtype, std::as_writable_bytes(std::span<T>(row))});
    EXPECT_TRUE(status.ok()) << status;
    return row;
  }
  static std::vector<int32_t> Window(Source& source, int64_t sample, size_t length,
                                     const std::string& feed = "tokens") {
    return Row<int32_t>(source, feed, sample, length, ir::DType::kI32);
  }
  static std::string ReadFails(Source& source, const std::string& feed, int64_t sample,
                               size_t bytes, ir::DType dtype, StatusCode code) {
    std::vector<std::byte> row(bytes);
    const Status status = source.Read(feed, sample, {dtype, row});
    EXPECT_EQ(status.code(), code) << status;
    return status.message();
  }

  TempDir dir_ = *TempDir::Make();
};

}  // namespace meshwright::data
