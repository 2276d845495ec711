// Who is behind each connection from a TLS front to the server behind it. For .cc files of this
// room.
//
// Thread rule: thread-safe.
#pragma once

#include <map>
#include <string>

#include "base/mutex.h"

namespace meshwright::security {

class Callers {
 public:
  // port: that the connection to the server behind comes from.
  void Put(int port, const std::string& caller) {
    const MutexLock lock(mutex_);
    by_port_[port] = caller;
  }
  // Before the port is another connection's.
  void Forget(int port) {
    const MutexLock lock(mutex_);
    by_port_.erase(port);
  }
  // "": there is no such connection.
  std::string At(int port) const {
    const MutexLock lock(mutex_);
    const auto found = by_port_.find(port);
    return found == by_port_.end() ? "" : found->second;
  }

 private:
  mutable Mutex mutex_;
  std::map<int, std::string> by_port_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::security
