// Where the tokens of an expert lie among slots: a tensor [rows, groups, capacity, ...] whose
// groups have as many neighbouring experts each. The experts of a group have a run each, one behind
// the other; what is behind the last run is zero.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops {

struct ExpertRun {
  int64_t row = 0;     // of the batch
  int64_t expert = 0;  // of those that the device has
  int64_t first = 0;   // slot, of all slots of the tensor
  int64_t count = 0;   // slots, 0 too
};

// By expert, rows in order. `runs` is reused. Errors: kOutOfRange: counts are negative or more than
// the slots.
Status FindExpertRuns(const int32_t* counts, int64_t rows, int64_t experts, int64_t groups,
                      int64_t capacity, std::vector<ExpertRun>& runs);

// Slots [b, groups, capacity, width] as one device has them: some of all groups; and the choices
// [b, tokens, k] of slots.
struct SlotBlock {
  int64_t rows = 0, groups = 0, capacity = 0, width = 0;
  int64_t tokens = 0, k = 0;
  int64_t first_group = 0;

  // `slots`: the tensor whose sharded dims the node has. With hosts, choices [b, hosts, tokens, k],
  // each host of a row is a row here, of all of its groups.
  static Result<SlotBlock> Of(const KernelSpec& spec, const ir::TensorType& slots,
                              const ir::TensorType& choices);
  int64_t slots() const { return rows * groups * capacity; }
  // Where slot number `slot` of a row is, of all slots; below 0: with another device, or nowhere.
  int64_t PlaceOf(int64_t row, int64_t slot) const {
    if (slot < 0) return -1;
    const int64_t group = slot / capacity - first_group;
    if (group < 0 || group >= groups) return -1;
    return (row * groups + group) * capacity + slot % capacity;
  }
};

// The slots of one row of the batch: choices [tokens, k] of experts, each in [0, experts). Choices
// of an expert are taken in the order of tokens; by_choice: all first choices before all second
// ones; with scores: those of the highest scores first, of equal ones in the order of tokens.
// chosen [experts] counts choices, used those that have a slot.
struct SlotRequest {
  int64_t tokens = 0;
  int64_t k = 1;
  int64_t experts = 1;
  int64_t groups = 1;
  int64_t capacity = 1;
  bool by_choice = false;
  bool drop = false;  // what finds no room gets slot -1; else that is an error
};
// Keeps its memory from one row to the next. Thread rule: one thread.
class SlotAssigner {
 public:
  explicit SlotAssigner(const SlotRequest& request);
  // scores: [tokens, k], or null. Errors: kOutOfRange: an id is none of an expert;
  // kResourceExhausted: no room.
  Status Assign(const int32_t* choices, int32_t* slots, int32_t* used, int32_t* chosen,
                const double* scores = nullptr);

 private:
  Status Count(const int32_t* choices, int32_t* used, int32_t* chosen) const;
  // Choices in the order in which room is given.
  void SetOrder(const double* scores);

  const SlotRequest request_;
  std::vector<int64_t> order_;
  std::vector<int64_t> next_;  // where the next choice of each expert goes
  std::vector<int64_t> end_;   // of its run
};

// Where tokens go that are sent once to each host (ir/op.h, expert_slots with hosts): of the slots
// [tokens, k] of a row, groups x capacity of them. places [tokens, hosts], within [hosts,
// host_capacity, k] and counts [hosts] are written; -1 is none.
struct HostRequest {
  int64_t tokens = 0;
  int64_t k = 1;
  int64_t hosts = 1;
  int64_t host_slots = 1;     // slots of a host: of its groups
  int64_t host_capacity = 1;  // tokens of a row that a host has places for
};
// Errors: kOutOfRange: a slot is none of the hosts'; kResourceExhausted: no place.
Status PlaceOnHosts(const HostRequest& request, const int32_t* slots, int32_t* places,
                    int32_t* within, int32_t* counts);

}  // namespace meshwright::ops
