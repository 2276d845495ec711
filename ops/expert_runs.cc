#include "ops/expert_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace meshwright::ops {

Status FindExpertRuns(const int32_t* counts, int64_t rows, int64_t experts, int64_t groups,
                      int64_t capacity, std::vector<ExpertRun>& runs) {
  runs.resize(static_cast<size_t>(rows * experts));
  const int64_t of_group = experts / groups;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t begin = (row * groups + group) * capacity;
      int64_t used = 0;
      for (int64_t i = 0; i < of_group; ++i) {
        const int64_t expert = group * of_group + i;
        const int64_t count = counts[row * experts + expert];
        if (count < 0 || used + count > capacity) {
          return OutOfRange(fmt::format("expert {} of row {} has {} slots behind {} of {}", expert,
                                        row, count, used, capacity));
        }
        runs[static_cast<size_t>(expert * rows + row)] = {row, expert, begin + used, count};
        used += count;
      }
    }
  }
  return OkStatus();
}

Result<SlotBlock> SlotBlock::Of(const KernelSpec& spec, const ir::TensorType& slots,
                                const ir::TensorType& choices) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(slots));
  const ir::Dims& of = choices.dims;
  MW_CHECK(of.size() == 3 || of.size() == 4) << "choices " << choices.ToString();
  const bool on_hosts = of.size() == 4;
  const int64_t hosts = on_hosts ? of[1] : 1;
  MW_CHECK(slots.dims[1] % hosts == 0) << slots.ToString() << " on " << hosts << " hosts";
  return SlotBlock{slots.dims[0] * hosts,
                   slots.dims[1] / hosts,
                   slots.dims[2],
                   slots.dims[3],
                   of[of.size() - 2],
                   of.back(),
                   on_hosts ? 0 : block.Start(1, 0)};
}

Status PlaceOnHosts(const HostRequest& request, const int32_t* slots, int32_t* places,
                    int32_t* within, int32_t* counts) {
  std::fill_n(places, request.tokens * request.hosts, -1);
  std::fill_n(within, request.hosts * request.host_capacity * request.k, -1);
  std::fill_n(counts, request.hosts, 0);
  for (int64_t token = 0; token < request.tokens; ++token) {
    for (int64_t choice = 0; choice < request.k; ++choice) {
      const int64_t slot = slots[token * request.k + choice];
      if (slot < 0) continue;
      const int64_t host = slot / request.host_slots;
      if (host >= request.hosts) {
        return OutOfRange(fmt::format("slot {} of {} hosts of {} slots", slot, request.hosts,
                                      request.host_slots));
      }
      int32_t& place = places[token * request.hosts + host];
      if (place < 0) {
        if (counts[host] == request.host_capacity) {
          return ResourceExhausted(
              fmt::format("more than {} tokens of a row for host {}", request.host_capacity, host));
        }
        place = static_cast<int32_t>(host * request.host_capacity + counts[host]++);
      }
      within[place * request.k + choice] = static_cast<int32_t>(slot % request.host_slots);
    }
  }
  return OkStatus();
}

SlotAssigner::SlotAssigner(const SlotRequest& request)
    : request_(request),
      order_(static_cast<size_t>(request.tokens * request.k)),
      next_(static_cast<size_t>(request.experts)),
      end_(static_cast<size_t>(request.experts)) {}

void SlotAssigner::SetOrder(const double* scores) {
  for (size_t i = 0; i < order_.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    order_[i] = request_.by_choice ? at % request_.tokens * request_.k + at / request_.tokens : at;
  }
  if (scores == nullptr) return;
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
}

Status SlotAssigner::Count(const int32_t* choices, int32_t* used, int32_t* chosen) const {
  std::fill_n(chosen, request_.experts, 0);
  for (int64_t i = 0; i < request_.tokens * request_.k; ++i) {
    const int32_t expert = choices[i];
    if (expert < 0 || expert >= request_.experts) {
      return OutOfRange(fmt::format("choice {} is expert {} of {}", i, expert, request_.experts));
    }
    ++chosen[expert];
  }
  std::copy_n(chosen, request_.experts, used);
  const int64_t of_group = request_.experts / request_.groups;
  for (int64_t group = 0; group < request_.groups; ++group) {
    int64_t room = request_.capacity;
    for (int64_t i = 0; i < of_group; ++i) {
      int32_t& count = used[group * of_group + i];
      if (count > room && !request_.drop) {
        return ResourceExhausted(fmt::format(
            "{} choices for group {} (experts {} to {}), which has {} slots",
            std::accumulate(chosen + group * of_group, chosen + (group + 1) * of_group, int64_t{0}),
            group, group * of_group, (group + 1) * of_group - 1, request_.capacity));
      }
      count = static_cast<int32_t>(std::min<int64_t>(count, room));
      room -= count;
    }
  }
  return OkStatus();
}

Status SlotAssigner::Assign(const int32_t* choices, int32_t* slots, int32_t* used, int32_t* chosen,
                            const double* scores) {
  MW_TRY(Count(choices, used, chosen));
  SetOrder(scores);
  const int64_t of_group = request_.experts / request_.groups;
  for (int64_t expert = 0; expert < request_.experts; ++expert) {
    const auto e = static_cast<size_t>(expert);
    const bool is_first = expert % of_group == 0;
    next_[e] = is_first ? expert / of_group * request_.capacity : end_[e - 1];
    end_[e] = next_[e] + used[expert];
  }
  for (const int64_t at : order_) {
    const auto e = static_cast<size_t>(choices[at]);
    slots[at] = next_[e] < end_[e] ? static_cast<int32_t>(next_[e]++) : -1;
  }
  return OkStatus();
}

}  // namespace meshwright::ops
