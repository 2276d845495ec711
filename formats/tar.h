// A tar archive in memory, as POSIX.1-1988 (ustar) has it: of plain files that belong to nobody.
//
// Thread rule: pure. Source: POSIX.1-2008, pax, "ustar Interchange Format".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace meshwright::formats {

struct TarFile {
  std::string name;  // "folder/file", at most kMostNameBytes
  std::string bytes;
};

inline constexpr size_t kMostNameBytes = 100;

// Files for their owner only (0600), all of the same time. REQUIRES: names are not empty, fit and
// do not lead out of the folder where the archive is unpacked.
std::string TarOf(const std::vector<TarFile>& files, int64_t unix_s);

}  // namespace meshwright::formats
