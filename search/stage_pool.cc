#include "search/stage_pool.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace meshwright::search {
namespace {

int RoundUp(int value, int unit) { return (value + unit - 1) / unit * unit; }

// How many devices a submesh takes where free devices are counted, in units: fractions of a host
// are rounded up to a chain of divisors of a host.
class ChainRounding {
 public:
  ChainRounding(const HostPool& pool, int unit) : pool_(pool), unit_(unit) {
    std::set<int> sizes;
    for (const SubmeshShape& shape : pool.shapes) {
      if (shape.hosts == 1) sizes.insert(RoundUp(shape.devices_per_host, unit));
    }
    chain_.insert(pool.host_devices);
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      if (*chain_.begin() % *size == 0) chain_.insert(*size);
    }
  }

  int Devices(const SubmeshShape& shape) const {
    if (shape.hosts > 1 || unit_ > pool_.host_devices) return RoundUp(shape.devices(), unit_);
    return *chain_.lower_bound(RoundUp(shape.devices_per_host, unit_));
  }

  // No submesh takes more than it has.
  bool Exact() const {
    return std::all_of(pool_.shapes.begin(), pool_.shapes.end(), [&](const SubmeshShape& shape) {
      return Devices(shape) == shape.devices();
    });
  }

 private:
  const HostPool& pool_;
  int unit_;
  std::set<int> chain_;
};

PoolStates CountStates(const HostPool& pool, int unit, bool rounded) {
  const ChainRounding rounding(pool, unit);
  PoolStates result;
  result.unit_devices = unit;
  result.full = pool.hosts * pool.host_devices / unit;
  result.states = result.full + 1;
  for (int state = 0; state < result.states; ++state) result.free_devices.push_back(state * unit);
  result.real = rounded || rounding.Exact();
  std::map<int, int> move_of_devices;
  for (const SubmeshShape& shape : pool.shapes) {
    const int devices = rounded ? rounding.Devices(shape) : shape.devices();
    const int taken = devices / unit;
    if (taken > result.full) continue;
    const auto [move, is_new] =
        move_of_devices.emplace(devices, static_cast<int>(result.moves.size()));
    if (is_new) result.moves.push_back({devices, {{taken, 0, result.states - taken}}});
    result.move_of[shape] = move->second;
  }
  return result;
}

// How many hosts have 1, 2, ..., G devices free. Free devices of a host in use that no sum of
// fractions fills are not counted: arrangements that differ by them are one.
class Arrangements {
 public:
  using Arrangement = std::vector<int>;  // [free devices - 1]

  Arrangements(const HostPool& pool, int most) : pool_(pool), most_(most) {
    fillable_.assign(static_cast<size_t>(pool.host_devices) + 1, 0);
    for (int free = 1; free <= pool.host_devices; ++free) {
      for (const SubmeshShape& shape : pool.shapes) {
        if (shape.hosts > 1 || shape.devices_per_host > free) continue;
        fillable_[Index(free)] =
            std::max(fillable_[Index(free)],
                     shape.devices_per_host + fillable_[Index(free - shape.devices_per_host)]);
      }
    }
  }

  // Nothing: there are more than `most`.
  std::optional<PoolStates> Enumerate() {
    PoolStates result;
    result.even = false;
    for (const SubmeshShape& shape : pool_.shapes) {
      result.move_of[shape] = static_cast<int>(result.moves.size());
      result.moves.push_back({shape.devices(), {}});
    }
    Arrangement full(static_cast<size_t>(pool_.host_devices));
    full.back() = pool_.hosts;
    Number(full);
    for (size_t state = 0; state < states_.size(); ++state) {
      for (const auto& [shape, move] : result.move_of) {
        const Arrangement arrangement = states_[state];
        for (Arrangement& next : After(arrangement, shape)) {
          const int to = Number(std::move(next));
          result.moves[static_cast<size_t>(move)].runs.push_back({static_cast<int>(state), to, 1});
        }
      }
      if (static_cast<int>(states_.size()) > most_) return std::nullopt;
    }
    result.states = static_cast<int>(states_.size());
    for (const Arrangement& arrangement : states_) {
      int devices = 0;
      for (size_t i = 0; i < arrangement.size(); ++i) {
        devices += arrangement[i] * (static_cast<int>(i) + 1);
      }
      result.free_devices.push_back(devices);
    }
    return result;
  }

 private:
  static size_t Index(int value) { return static_cast<size_t>(value); }

  int Number(Arrangement arrangement) {
    const auto [at, is_new] =
        number_of_.emplace(std::move(arrangement), static_cast<int>(states_.size()));
    if (is_new) states_.push_back(at->first);
    return at->second;
  }

  std::vector<Arrangement> After(const Arrangement& arrangement, const SubmeshShape& shape) const {
    std::vector<Arrangement> after;
    const int whole = pool_.host_devices;
    const auto take = [&](int free, int hosts, int left) {
      Arrangement next = arrangement;
      next[Index(free - 1)] -= hosts;
      if (left > 0) next[Index(left - 1)] += 1;
      after.push_back(std::move(next));
    };
    if (shape.hosts > 1) {
      if (arrangement[Index(whole - 1)] >= shape.hosts) take(whole, shape.hosts, 0);
      return after;
    }
    // A host that is filled exactly is as good as any, unless somebody wants it whole.
    for (int free = shape.devices_per_host; free <= whole; ++free) {
      if (arrangement[Index(free - 1)] == 0) continue;
      const int left = free - shape.devices_per_host;
      take(free, 1, fillable_[Index(left)]);
      if (left == 0 && free < whole) break;
    }
    return after;
  }

  const HostPool& pool_;
  int most_;
  std::vector<int> fillable_;  // of so many free devices, the most that fractions fill
  std::vector<Arrangement> states_;
  std::map<Arrangement, int> number_of_;
};

}  // namespace

int64_t PoolStates::entries() const {
  int64_t sum = 0;
  for (const Move& move : moves) {
    for (const InventoryRun& run : move.runs) sum += run.count;
  }
  return sum;
}

PoolStates MakePoolStates(const HostPool& pool, int unit_devices, int arrangements,
                          StageInventory::Counts counts) {
  const bool coarse = unit_devices > 1;
  if (coarse || ChainRounding(pool, unit_devices).Exact()) {
    return CountStates(pool, unit_devices, true);
  }
  if (auto exact = Arrangements(pool, arrangements).Enumerate()) return *std::move(exact);
  return CountStates(pool, unit_devices, counts == StageInventory::Counts::kRounded);
}

std::vector<int> PoolUnits(const HostPool& pool) {
  std::vector<int> units;
  for (int devices = 1; devices <= pool.host_devices; ++devices) {
    if (pool.host_devices % devices == 0) units.push_back(devices);
  }
  for (int group = 1; group < pool.hosts;) {
    int next = std::min(2 * group, pool.hosts);
    for (int divisor = group + 1; divisor <= next; ++divisor) {
      if (pool.hosts % divisor == 0) next = divisor;
    }
    units.push_back(next * pool.host_devices);
    group = next;
  }
  return units;
}

}  // namespace meshwright::search
