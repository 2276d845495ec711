// The cores that a worker pins its devices to. Workers of a host claim cores one by one, so that no
// two pin to the same one, whoever started them.
//
// A claim is an abstract unix socket with the core's number in its name: it leaves nothing behind
// and ends with the process. Names are as far apart as network namespaces: between containers that
// see all cores, claims do not help; give each a set of cores of its own there.
//
// Thread rule: one thread. Ownership: gives the cores back when destroyed.
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace meshwright::worker {

// The numbers of the cores that this process may use, ascending; empty where the system does not
// say.
std::vector<int> AllowedCpus();

// A name of the host that one process has at a time, as long as the result lives; not valid when
// another has it.
UniqueFd ClaimName(const std::string& name);

class CoreClaims {
 public:
  CoreClaims() = default;
  // `count` of the cores that this process may use and nobody has claimed, or none when there are
  // not so many. `realm`: claims of different realms do not meet.
  static CoreClaims Take(int count, const std::string& realm = "core");

  const std::vector<int>& cores() const { return cores_; }

 private:
  std::vector<int> cores_;
  std::vector<UniqueFd> sockets_;
};

}  // namespace meshwright::worker
