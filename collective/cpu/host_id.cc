#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "collective/communicator.h"

namespace meshwright::collective {
namespace {

uint64_t NamespaceInode(const char* path) {
  struct stat info {};
  return stat(path, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

std::string LocalHostId() {
  std::string boot_id = "unknown-boot";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return fmt::format("{}/net:{}/mnt:{}", boot_id, NamespaceInode("/proc/self/ns/net"),
                     NamespaceInode("/proc/self/ns/mnt"));
}

}  // namespace meshwright::collective
