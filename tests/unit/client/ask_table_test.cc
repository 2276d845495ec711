// What a session has asked and not settled, as its controller counts it.
#include "client/ask_table.h"

#include <gtest/gtest.h>

namespace meshwright::client {
namespace {

// 64 asks are out, and 16 answers come: until their acknowledgement has been written, 16 more asks
// would be beyond what the controller takes.
TEST(AskTable, AcksAreOpenUntilTheyHaveBeenSent) {
  AskTable table;
  for (int i = 0; i < 64; ++i) {
    const uint64_t id = table.Add(proto::ClientAsk(), [](const Result<proto::AskDone>&) {});
    EXPECT_TRUE(table.MessageOf(id).acked.empty());
  }
  std::vector<uint64_t> acks;
  for (uint64_t id = 1; id <= 16; ++id) {
    EXPECT_EQ(table.open(), 64 - (id - 1));
    ASSERT_NE(table.Answered(id, 8), nullptr);
    acks = table.DueAcks();
  }
  ASSERT_EQ(acks.size(), 16u);
  EXPECT_EQ(table.unanswered(), 48u);
  EXPECT_EQ(table.open(), 64u);
  table.AcksSent(acks.size());
  EXPECT_EQ(table.open(), 48u);
}

}  // namespace
}  // namespace meshwright::client
