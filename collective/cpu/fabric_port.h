// What fabrics and listeners know of each other: a fabric registers at a listener, which hands it
// the connections that are meant for it.
//
// Thread rule: Register and Unregister are thread-safe; a fabric is called on the listener's thread
// and must not block. Ownership: a fabric unregisters before it goes.
#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "collective/communicator.h"
#include "collective/cpu/wire.h"

namespace meshwright::collective {

// A fabric as the listener sees it.
class FabricPort {
 public:
  struct Identity {
    std::string cluster_id;
    uint64_t generation = 0;
    uint64_t process_id = 0;
    std::string secret;
  };
  virtual ~FabricPort() = default;
  virtual const Identity& identity() const = 0;
  // Whether a process is another member of the mesh.
  virtual bool Expects(uint64_t process_id) const = 0;
  // An authenticated connection of an expected process, to be answered by the fabric.
  virtual void Adopt(UniqueFd fd, const Hello& hello) = 0;
  // A connection for this fabric was refused.
  virtual void NoteRefusal(const Status& why) = 0;
};

class FabricListener : public Listener {
 public:
  // Errors: kAlreadyExists for a second fabric of the same identity.
  virtual Status Register(FabricPort* fabric) = 0;
  // After it returned, the fabric is not called any more.
  virtual void Unregister(FabricPort* fabric) = 0;
};

}  // namespace meshwright::collective
