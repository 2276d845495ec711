// What the processes of a mesh tell each other, by way of the controller, before they can meet in
// NCCL: their versions, and where to meet (the unique ids), from the process of rank 0.
//
// Text, one line: `meshwright-nccl 1 worker=W ranks=0,1 generation=7 nccl=22809 driver=13000
// runtime=13000 ids=HEX,HEX`. A name has its spaces replaced. An id holds the address of a listener
// and a random number: who reads it can join the mesh, so that it travels as the secret does.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/nccl/library.h"

namespace meshwright::collective::nccl {

struct Invitation {
  std::string worker;
  std::vector<int> ranks;  // of the process, ascending
  int64_t generation = 0;
  int nccl = 0;     // as NCCL counts: 22809
  int driver = 0;   // CUDA: 13000
  int runtime = 0;  // CUDA
  std::vector<UniqueId> ids;
};

std::string FormatInvitation(const Invitation& invitation);
// Errors: kInvalidArgument quoting the text.
Result<Invitation> ParseInvitation(const std::string& text);

// How many ids a mesh of so many ranks starts with.
int IdCount(int ranks);

// Every rank came exactly once, with equal versions and generation; returns the ids of rank 0.
// Errors: kFailedPrecondition naming two workers and their versions; kInvalidArgument naming ranks
// that are missing or came twice.
Result<std::vector<UniqueId>> CheckInvitations(const std::vector<Invitation>& invitations,
                                               int ranks);

}  // namespace meshwright::collective::nccl
