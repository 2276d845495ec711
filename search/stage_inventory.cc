#include "search/stage_inventory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "search/stage_pool.h"

namespace meshwright::search {
namespace {

struct SizedPool {
  HostPool pool;
  std::vector<int> units;
  size_t unit = 0;  // index into units
  PoolStates states;
};

std::vector<HostPool> PoolsOf(const StageProblem& problem) {
  std::vector<HostPool> pools;
  for (size_t c = 0; c < problem.classes.size(); ++c) {
    std::map<int, int> hosts_of_size;
    for (int devices : problem.classes[c].host_devices) ++hosts_of_size[devices];
    for (const auto& [devices, hosts] : hosts_of_size) {
      HostPool pool{static_cast<int>(c), devices, hosts, {}};
      for (const StageOption& option : problem.options) {
        const SubmeshShape& shape = option.shape;
        const bool fits = shape.hosts == 1
                              ? shape.devices_per_host <= devices
                              : shape.devices_per_host == devices && shape.hosts <= hosts;
        if (option.device_class == pool.device_class && fits) pool.shapes.insert(shape);
      }
      if (!pool.shapes.empty()) pools.push_back(std::move(pool));
    }
  }
  return pools;
}

int64_t StatesOf(const std::vector<SizedPool>& pools) {
  int64_t states = 1;
  for (const SizedPool& pool : pools) states *= pool.states.states;
  return states;
}

int64_t EntriesOf(const std::vector<SizedPool>& pools) {
  const int64_t states = StatesOf(pools);
  int64_t entries = states;
  for (const SizedPool& pool : pools) {
    entries += pool.states.entries() * (states / pool.states.states);
  }
  return entries;
}

// Pools whose product keeps the limit, or cannot be made coarser.
std::vector<SizedPool> SizePools(const StageProblem& problem, const StageInventory::Limits& limits,
                                 StageInventory::Counts counts) {
  std::vector<SizedPool> pools;
  const auto states_of = [&](const SizedPool& pool) {
    return MakePoolStates(pool.pool, pool.units[pool.unit], limits.arrangements, counts);
  };
  for (HostPool& pool : PoolsOf(problem)) {
    SizedPool sized{std::move(pool), {}, 0, {}};
    sized.units = PoolUnits(sized.pool);
    sized.states = states_of(sized);
    pools.push_back(std::move(sized));
  }
  // Several pools make runs short, and limits on the period leave out less of them.
  const int64_t pool_count = std::max<int64_t>(1, static_cast<int64_t>(pools.size()));
  while (EntriesOf(pools) > limits.entries / pool_count) {
    SizedPool* largest = nullptr;
    for (SizedPool& pool : pools) {
      if (pool.unit + 1 == pool.units.size()) continue;
      if (!largest || pool.states.states > largest->states.states) largest = &pool;
    }
    if (!largest) break;
    ++largest->unit;
    largest->states = states_of(*largest);
  }
  // The last pool should have the longest runs.
  std::stable_sort(pools.begin(), pools.end(), [](const SizedPool& a, const SizedPool& b) {
    return std::pair(a.states.even, a.states.states) < std::pair(b.states.even, b.states.states);
  });
  return pools;
}

// States of the pools before and behind one, as numbers of combinations.
struct Around {
  int outer = 1;
  int inner = 1;
};

Around AroundPool(const std::vector<SizedPool>& pools, size_t p) {
  Around around;
  for (size_t q = 0; q < pools.size(); ++q) {
    if (q < p) around.outer *= pools[q].states.states;
    if (q > p) around.inner *= pools[q].states.states;
  }
  return around;
}

// A move of one pool as runs over the states of all, none of them longer than the last pool: along
// it the free devices grow evenly.
void AppendRuns(const std::vector<SizedPool>& pools, size_t p, int move,
                std::vector<InventoryRun>& runs) {
  const Around around = AroundPool(pools, p);
  const bool is_last = p + 1 == pools.size();
  for (int o = 0; o < around.outer; ++o) {
    const int base = o * pools[p].states.states;
    for (const InventoryRun& run : pools[p].states.moves[static_cast<size_t>(move)].runs) {
      if (is_last) {
        runs.push_back({base + run.from, base + run.to, run.count});
        continue;
      }
      const int line = pools.back().states.even ? pools.back().states.states : 1;
      for (int i = 0; i < run.count * around.inner; i += line) {
        runs.push_back(
            {(base + run.from) * around.inner + i, (base + run.to) * around.inner + i, line});
      }
    }
  }
}

std::vector<std::vector<int>> FreeDevices(const std::vector<SizedPool>& pools, size_t classes,
                                          int states) {
  std::vector<std::vector<int>> free(classes, std::vector<int>(static_cast<size_t>(states)));
  for (size_t p = 0; p < pools.size(); ++p) {
    const Around around = AroundPool(pools, p);
    std::vector<int>& of_class = free[static_cast<size_t>(pools[p].pool.device_class)];
    for (int state = 0; state < states; ++state) {
      const int of_pool = state / around.inner % pools[p].states.states;
      of_class[static_cast<size_t>(state)] +=
          pools[p].states.free_devices[static_cast<size_t>(of_pool)];
    }
  }
  return free;
}

// What an option takes: a move in every pool of its class that has one for its shape.
struct SlotKey {
  int device_class = 0;
  bool several_hosts =
      false;        // sorts behind fractions where pools differ in what they have room for
  int devices = 0;  // the most that it takes of a pool
  std::vector<std::pair<size_t, int>> moves;  // pool, its move
  friend auto operator<=>(const SlotKey&, const SlotKey&) = default;
};

int LeastDevices(const std::vector<SizedPool>& pools, const SlotKey& key) {
  int least = key.devices;
  for (const auto& [p, move] : key.moves) {
    least = std::min(least, pools[p].states.moves[static_cast<size_t>(move)].devices);
  }
  return least;
}

SlotKey KeyOf(const std::vector<SizedPool>& pools, const StageOption& option, bool one_pool) {
  SlotKey key{option.device_class, option.shape.hosts > 1 && !one_pool, 0, {}};
  for (size_t p = 0; p < pools.size(); ++p) {
    if (pools[p].pool.device_class != option.device_class) continue;
    const auto move = pools[p].states.move_of.find(option.shape);
    if (move == pools[p].states.move_of.end()) continue;
    key.moves.emplace_back(p, move->second);
    const int devices = pools[p].states.moves[static_cast<size_t>(move->second)].devices;
    key.devices = std::max(key.devices, devices);
  }
  return key;
}

}  // namespace

StageInventory StageInventory::Make(const StageProblem& problem, const Limits& limits,
                                    Counts counts) {
  const std::vector<SizedPool> pools = SizePools(problem, limits, counts);
  StageInventory inventory;
  std::map<int, int> pools_of_class;
  for (const SizedPool& pool : pools) {
    inventory.full_ = inventory.full_ * pool.states.states + pool.states.full;
    inventory.states_ *= pool.states.states;
    inventory.real_ &= pool.states.real;
    inventory.units_.push_back(
        {pool.pool.device_class, pool.pool.host_devices, pool.states.unit_devices});
    ++pools_of_class[pool.pool.device_class];
  }
  inventory.free_devices_ = FreeDevices(pools, problem.classes.size(), inventory.states_);
  std::map<SlotKey, std::vector<int>> options_of;
  inventory.slot_of_option_.assign(problem.options.size(), -1);
  for (size_t option = 0; option < problem.options.size(); ++option) {
    const StageOption& o = problem.options[option];
    SlotKey key = KeyOf(pools, o, pools_of_class[o.device_class] == 1);
    if (!key.moves.empty()) options_of[std::move(key)].push_back(static_cast<int>(option));
  }
  for (const auto& [key, options] : options_of) {
    InventorySlot slot;
    slot.device_class = key.device_class;
    slot.devices = LeastDevices(pools, key);
    slot.chain = key.several_hosts ? -1 : key.device_class;
    for (const auto& [p, move] : key.moves) AppendRuns(pools, p, move, slot.runs);
    for (int option : options) {
      inventory.slot_of_option_[static_cast<size_t>(option)] =
          static_cast<int>(inventory.slots_.size());
    }
    inventory.slots_.push_back(std::move(slot));
  }
  return inventory;
}

int StageInventory::devices() const {
  int devices = 0;
  for (int c = 0; c < classes(); ++c) devices += free_devices(c, full_);
  return devices;
}

}  // namespace meshwright::search
