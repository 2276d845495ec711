#include "proto/convert_records.h"

#include <fmt/format.h>

namespace meshwright::proto {
namespace {

// Twice what workers write (worker/runtime.cc).
constexpr int kMostMarks = 400'000;

// Of numbers from anywhere; wraps around.
int64_t Plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

}  // namespace

void Put(const ir::StepRecord& record, v1::StepRecord& wire) {
  wire.set_rank(record.rank);
  wire.set_lane(record.lane);
  wire.set_program(record.program);
  wire.set_step(record.step);
  wire.set_begin_ns(record.begin_ns);
  wire.set_end_ns(record.end_ns);
  wire.set_left_out(record.left_out);
  const auto count = static_cast<int>(record.marks.size());
  wire.mutable_instruction()->Reserve(count);
  wire.mutable_node()->Reserve(count);
  wire.mutable_ns()->Reserve(count);
  int32_t instruction = 0;
  int64_t ns = record.begin_ns;
  for (const ir::StepMark& mark : record.marks) {
    wire.add_instruction(mark.instruction - instruction);
    wire.add_node(mark.node);
    wire.add_ns(mark.end_ns - ns);
    instruction = mark.instruction;
    ns = mark.end_ns;
  }
}

Result<ir::StepRecord> Get(const v1::StepRecord& wire) {
  const int count = wire.instruction_size();
  if (count > kMostMarks || wire.node_size() != count || wire.ns_size() != count) {
    return Fail(InvalidArgument(
        fmt::format("a record of a step with {} instructions, {} nodes and {} times", count,
                    wire.node_size(), wire.ns_size())));
  }
  ir::StepRecord record;
  record.rank = wire.rank();
  record.lane = wire.lane();
  record.program = wire.program();
  record.step = wire.step();
  record.begin_ns = wire.begin_ns();
  record.end_ns = wire.end_ns();
  record.left_out = wire.left_out();
  record.marks.reserve(static_cast<size_t>(count));
  int64_t instruction = 0;
  int64_t ns = record.begin_ns;
  for (int i = 0; i < count; ++i) {
    instruction += wire.instruction(i);
    ns = Plus(ns, wire.ns(i));
    if (instruction < 0 || instruction > INT32_MAX) {
      return Fail(InvalidArgument(fmt::format("a mark of instruction {}", instruction)));
    }
    record.marks.push_back({static_cast<int32_t>(instruction), wire.node(i), ns});
  }
  return record;
}

}  // namespace meshwright::proto
