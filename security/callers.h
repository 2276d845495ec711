// Who is behind each connection from a TLS front to the server behind it. For .cc files of this
// room.
//
// Thread rule: thread-safe. Ownership: outlives its places.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "base/listen_address.h"
#include "base/mutex.h"

namespace meshwright::security {

struct Stranger {
  std::string address;
  int port = 0;
  // "ipv4:10.0.0.2:40312"
  std::string Text() const {
    const bool v6 = address.find(':') != std::string::npos;
    return fmt::format("{}:{}", v6 ? "ipv6" : "ipv4", FormatHostPort(address, port));
  }
};

class Callers {
 public:
  // A connection that is there; to be dropped before its port is another one's.
  class Place {
   public:
    Place() = default;
    Place(Callers* callers, int port) : callers_(callers), port_(port) {}
    ~Place() { Drop(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    Place& operator=(Place&& other) noexcept {
      Drop();
      callers_ = std::exchange(other.callers_, nullptr);
      port_ = other.port_;
      return *this;
    }
    void Drop() {
      if (callers_ != nullptr) std::exchange(callers_, nullptr)->Forget(port_);
    }

   private:
    Callers* callers_ = nullptr;
    int port_ = 0;
  };

  // Before the server behind has a byte of it, and may ask. port: that the connection to the server
  // behind comes from.
  Place Put(int port, const Stranger& stranger) {
    const MutexLock lock(mutex_);
    by_port_[port] = stranger.Text();
    return Place(this, port);
  }
  // "": there is no such connection.
  std::string At(int port) const {
    const MutexLock lock(mutex_);
    const auto found = by_port_.find(port);
    return found == by_port_.end() ? "" : found->second;
  }

 private:
  void Forget(int port) {
    const MutexLock lock(mutex_);
    by_port_.erase(port);
  }

  mutable Mutex mutex_;
  std::map<int, std::string> by_port_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::security
