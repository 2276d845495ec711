#include "base/table.h"

#include <gtest/gtest.h>

namespace meshwright {
namespace {

TEST(Table, AlignsColumnsWithoutTrailingSpaces) {
  EXPECT_EQ(FormatTable({"ID", "NAME"}, {{"1", "long name"}, {"22", ""}}),
            "ID  NAME\n1   long name\n22\n");
}

}  // namespace
}  // namespace meshwright
