#include "collective/nccl/invitation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

namespace meshwright::collective::nccl {
namespace {

constexpr const char* kMagic = "meshwright-nccl 1";

std::string ToHex(const UniqueId& id) {
  std::string text;
  for (const char byte : id.bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

template <typename T>
bool ParseNumber(std::string_view text, T* value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && end == text.data() + text.size();
}

bool FromHex(const std::string& text, UniqueId* id) {
  if (text.size() != 2 * kUniqueIdBytes) return false;
  for (size_t i = 0; i < kUniqueIdBytes; ++i) {
    uint8_t byte = 0;
    if (!ParseNumber(std::string_view(text).substr(2 * i, 2), &byte, 16)) return false;
    id->bytes[i] = static_cast<char>(byte);
  }
  return true;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool ParseFields(std::map<std::string, std::string>& fields, Invitation* invitation) {
  invitation->worker = fields["worker"];
  for (const std::string& text : Split(fields["ranks"], ',')) {
    int rank = 0;
    if (!ParseNumber(text, &rank)) return false;
    invitation->ranks.push_back(rank);
  }
  for (const std::string& text : Split(fields["ids"], ',')) {
    UniqueId id;
    if (!FromHex(text, &id)) return false;
    invitation->ids.push_back(id);
  }
  return !invitation->ranks.empty() && ParseNumber(fields["generation"], &invitation->generation) &&
         ParseNumber(fields["nccl"], &invitation->nccl) &&
         ParseNumber(fields["driver"], &invitation->driver) &&
         ParseNumber(fields["runtime"], &invitation->runtime);
}

std::string CudaText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Status CheckEqual(const Invitation& first, const Invitation& other) {
  const auto differ = [&](const char* what, const std::string& a, const std::string& b) {
    return FailedPrecondition(
        fmt::format("{} has {} {}, {} has {}: all workers of a mesh need the same", first.worker,
                    what, a, other.worker, b));
  };
  if (first.nccl != other.nccl) {
    return differ("NCCL", VersionText(first.nccl), VersionText(other.nccl));
  }
  if (first.runtime != other.runtime) {
    return differ("the CUDA runtime", CudaText(first.runtime), CudaText(other.runtime));
  }
  if (first.driver != other.driver) {
    return differ("a driver of CUDA", CudaText(first.driver), CudaText(other.driver));
  }
  if (first.generation != other.generation) {
    return differ("mesh generation", std::to_string(first.generation),
                  std::to_string(other.generation));
  }
  return OkStatus();
}

}  // namespace

std::string FormatInvitation(const Invitation& invitation) {
  std::vector<std::string> ids;
  for (const UniqueId& id : invitation.ids) ids.push_back(ToHex(id));
  std::string worker = invitation.worker;
  std::replace_if(
      worker.begin(), worker.end(), [](char c) { return c <= ' '; }, '_');
  return fmt::format("{} worker={} ranks={} generation={} nccl={} driver={} runtime={} ids={}",
                     kMagic, worker, fmt::join(invitation.ranks, ","), invitation.generation,
                     invitation.nccl, invitation.driver, invitation.runtime, fmt::join(ids, ","));
}

Result<Invitation> ParseInvitation(const std::string& text) {
  const size_t start = std::string(kMagic).size();
  std::map<std::string, std::string> fields;
  if (text.rfind(kMagic, 0) == 0) {
    for (const std::string& field : Split(text.substr(start), ' ')) {
      const size_t equals = field.find('=');
      if (equals != std::string::npos) {
        fields[field.substr(0, equals)] = field.substr(equals + 1);
      }
    }
  }
  Invitation invitation;
  if (!ParseFields(fields, &invitation)) {
    return Fail(InvalidArgument(
        fmt::format("not an invitation to a mesh by NCCL: '{}'", text.substr(0, 80))));
  }
  return invitation;
}

int IdCount(int ranks) {
  return ranks <= kRanksForOneId ? 1 : (ranks + kRanksPerId - 1) / kRanksPerId;
}

Result<std::vector<UniqueId>> CheckInvitations(const std::vector<Invitation>& invitations,
                                               int ranks) {
  std::vector<const Invitation*> of_rank(static_cast<size_t>(ranks), nullptr);
  for (const Invitation& invitation : invitations) {
    MW_TRY(CheckEqual(invitations.front(), invitation));
    for (const int rank : invitation.ranks) {
      if (rank < 0 || rank >= ranks || of_rank[static_cast<size_t>(rank)] != nullptr) {
        return Fail(
            InvalidArgument(fmt::format("invitation of {}: rank {} is out of 0..{} or came twice",
                                        invitation.worker, rank, ranks - 1)));
      }
      of_rank[static_cast<size_t>(rank)] = &invitation;
    }
  }
  std::vector<int> missing;
  for (int rank = 0; rank < ranks; ++rank) {
    if (of_rank[static_cast<size_t>(rank)] == nullptr) missing.push_back(rank);
  }
  if (!missing.empty()) {
    return Fail(
        InvalidArgument(fmt::format("no invitation came from ranks {}", fmt::join(missing, ","))));
  }
  if (of_rank[0]->ids.size() != static_cast<size_t>(IdCount(ranks))) {
    return Fail(
        InvalidArgument(fmt::format("{} holds rank 0 and gave {} ids, {} are needed",
                                    of_rank[0]->worker, of_rank[0]->ids.size(), IdCount(ranks))));
  }
  return of_rank[0]->ids;
}

}  // namespace meshwright::collective::nccl
