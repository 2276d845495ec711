// Tables for people, as `kubectl get` prints them.
//
// Thread rule: pure.
#pragma once

#include <string>
#include <vector>

namespace meshwright {

// Columns two spaces apart, no borders, no trailing spaces, a line end after each row. REQUIRES: no
// row is longer than the header.
std::string FormatTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows);

}  // namespace meshwright
