// What is left of the hosts while stages take submeshes, as numbered states.
//
// Hosts of one class with as many devices are alike: a state says how many of them have how many
// devices free. Only states that are asked for are made.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "search/stage_problem.h"

namespace meshwright::search {

class FreeHosts {
 public:
  explicit FreeHosts(const std::vector<StageDeviceClass>& classes);

  int full() const { return 0; }  // nothing is taken
  int free_devices(int state) const { return free_devices_[static_cast<size_t>(state)]; }
  // The states that taking a submesh can lead to: of one host any that has room for it. The
  // reference holds until the next call.
  const std::vector<int>& After(int state, int device_class, const SubmeshShape& shape);

  struct Taken {
    int state = 0;  // after it was taken
    int device_class = 0;
    SubmeshShape shape;
  };
  // Where submeshes lie that were taken one after the other: from the last devices of the last
  // hosts on. REQUIRES: each state is one of After() the one before.
  std::vector<SubmeshPlace> PlacesOf(const std::vector<Taken>& taken) const;

 private:
  // Hosts of a class with equally many devices: entries [first, first + devices] of a state are how
  // many of them have 0, 1, ... devices free.
  struct Pool {
    int device_class = 0;
    int devices = 0;
    int first = 0;
    std::vector<int> hosts;  // of the class, ascending
  };
  using State = std::vector<int32_t>;

  int NumberOf(const State& state);

  std::vector<Pool> pools_;
  std::vector<State> states_;
  std::vector<int> free_devices_;
  std::map<State, int> number_of_;
  std::vector<std::map<std::pair<int, SubmeshShape>, std::vector<int>>> after_;  // per state
};

}  // namespace meshwright::search
