#include "report/visualize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/mesh/mesh_testing.h"

namespace meshwright::report {
namespace {

using ::testing::HasSubstr;

std::string Grid(std::string_view text, const mesh::Mesh& mesh, const GridOptions& options = {}) {
  const mesh::TypedSharding parsed = mesh::Parse(text);
  const Result<std::string> grid = RenderGrid(parsed.type, parsed.sharding, mesh, options);
  return grid.has_value() ? *grid : grid.error().ToString();
}

std::string Svg(std::string_view text, const mesh::Mesh& mesh) {
  const mesh::TypedSharding parsed = mesh::Parse(text);
  const Result<std::string> svg = RenderSvg(parsed.type, parsed.sharding, mesh);
  return svg.has_value() ? *svg : svg.error().ToString();
}

size_t Count(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

// Characters of the longest line, UTF-8 aware.
size_t WidthOf(const std::string& text) {
  size_t width = 0, line = 0;
  for (char c : text) {
    if (c == '\n') {
      width = std::max(width, line);
      line = 0;
    } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {
      ++line;
    }
  }
  return width;
}

TEST(RenderGrid, BothDimsSplit) {
  EXPECT_EQ(Grid("f32[8{data},16{tensor}]", mesh::MakeMesh({{"data", 2}, {"tensor", 2}})),
            "f32[8{data},16{tensor}] over data=2 tensor=2\n"
            "rows: dim 0, columns: dim 1\n"
            "      0:8    8:16\n"
            "    ┌──────┬──────┐\n"
            "0:4 │  0   │  1   │\n"
            "    ├──────┼──────┤\n"
            "4:8 │  2   │  3   │\n"
            "    └──────┴──────┘\n");
}

TEST(RenderGrid, ReplicasShareACell) {
  EXPECT_EQ(Grid("f32[8,16{tensor}]", mesh::MakeMesh({{"data", 2}, {"tensor", 2}}, 4)),
            "f32[8,16{tensor}] over data=2 tensor=2\n"
            "rows: dim 0, columns: dim 1\n"
            "      0:8    8:16\n"
            "    ┌──────┬──────┐\n"
            "0:8 │ 4,6  │ 5,7  │\n"
            "    └──────┴──────┘\n");
}

TEST(RenderGrid, OneDimIsOneRow) {
  EXPECT_EQ(Grid("f32[16{tensor,data}]", mesh::MakeMesh({{"data", 2}, {"tensor", 2}})),
            "f32[16{tensor,data}] over data=2 tensor=2\n"
            "columns: dim 0\n"
            "   0:4     4:8    8:12    12:16\n"
            "┌───────┬───────┬───────┬───────┐\n"
            "│   0   │   2   │   1   │   3   │\n"
            "└───────┴───────┴───────┴───────┘\n");
}

TEST(RenderGrid, AScalarIsOneCell) {
  EXPECT_EQ(Grid("f32[] partial(sum: data)", mesh::MakeMesh({{"data", 2}})),
            "f32[] partial(sum: data) over data=2\n"
            "partial over data: the devices of a cell hold parts of its value\n"
            "┌──────┐\n"
            "│ 0,1  │\n"
            "└──────┘\n");
}

TEST(RenderGrid, HigherRanksShowTheSplitDims) {
  const mesh::Mesh mesh = mesh::MakeMesh({{"data", 2}, {"tensor", 2}});
  EXPECT_THAT(Grid("f32[8{data},32,16{tensor}]", mesh), HasSubstr("rows: dim 0, columns: dim 2\n"));
  EXPECT_THAT(Grid("f32[8{data},32,16]", mesh), HasSubstr("rows: dim 0, columns: dim 2\n"));
  EXPECT_THAT(Grid("f32[8,32,16{data}]", mesh), HasSubstr("rows: dim 1, columns: dim 2\n"));
  EXPECT_THAT(Grid("f32[8,32,16]", mesh), HasSubstr("rows: dim 1, columns: dim 2\n"));
}

TEST(RenderGrid, AThirdSplitDimGivesOnePanelPerBlock) {
  const std::string grid =
      Grid("f32[4{a},4{b},4{c}]", mesh::MakeMesh({{"a", 2}, {"b", 2}, {"c", 2}}));
  EXPECT_THAT(grid, HasSubstr("dim 0 [0:2]\n"));
  EXPECT_THAT(grid, HasSubstr("dim 0 [2:4]\n"));
  EXPECT_THAT(grid, HasSubstr("2:4 │  2   │  3   │\n"));
  EXPECT_THAT(grid, HasSubstr("2:4 │  6   │  7   │\n"));
}

TEST(RenderGrid, StaysWithinTheWidth) {
  const mesh::Mesh wide = mesh::MakeMesh({{"data", 2}, {"tensor", 64}});
  const std::string elided = Grid("f32[8,1024{tensor}]", wide);
  EXPECT_LE(WidthOf(elided), 80u);
  EXPECT_THAT(elided, HasSubstr("│     …     │  63,127   │"));
  const std::string wrapped =
      Grid("f32[8,1024{tensor}]", mesh::MakeMesh({{"data", 16}, {"tensor", 4}}));
  EXPECT_LE(WidthOf(wrapped), 80u);
  EXPECT_THAT(wrapped, HasSubstr("│ 0,4,8,12,16,20, │"));
  EXPECT_THAT(wrapped, HasSubstr("│       62        │"));
}

TEST(RenderGrid, ColorsAreOptional) {
  const mesh::Mesh mesh = mesh::MakeMesh({{"data", 2}});
  EXPECT_EQ(Count(Grid("f32[8{data}]", mesh), "\x1b["), 0u);
  EXPECT_EQ(Count(Grid("f32[8{data}]", mesh, {.color = true}), "\x1b[0m"), 2u);
}

TEST(RenderGrid, RejectsShardingsThatAreNotValid) {
  EXPECT_THAT(Grid("f32[7{data}]", mesh::MakeMesh({{"data", 2}})), HasSubstr("does not divide"));
}

TEST(RenderSvg, HasOneRectanglePerCellAndNamesTheDevices) {
  const std::string svg =
      Svg("f32[8{data},16{tensor}]", mesh::MakeMesh({{"data", 2}, {"tensor", 4}}));
  EXPECT_EQ(svg.rfind("<svg xmlns=", 0), 0u);
  EXPECT_EQ(Count(svg, "<rect"), 9u);  // the background too
  EXPECT_THAT(svg, HasSubstr(">7</text>"));
  EXPECT_THAT(svg, HasSubstr(">12:16</text>"));
  EXPECT_EQ(Count(svg, "<text"), Count(svg, "</text>"));
}

TEST(RenderSvg, EscapesNames) {
  const mesh::Mesh mesh = mesh::MakeMesh({{"a<b&\"c\"", 2}});
  const Result<std::string> svg =
      RenderSvg({ir::DType::kF32, {4}}, mesh::Sharding{{{"a<b&\"c\""}}, {}}, mesh);
  ASSERT_TRUE(svg.has_value());
  EXPECT_THAT(*svg, HasSubstr("a&lt;b&amp;&quot;c&quot;=2"));
}

}  // namespace
}  // namespace meshwright::report
