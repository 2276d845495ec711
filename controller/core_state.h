// What the control core knows: one value for each noun.
//
// Queue and clients read entries of the book; for the rest, none knows another: the steps of the
// core (controller/core.h) carry what comes out of one to the next. Thread rule: the core's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "controller/actor_table.h"
#include "controller/core_context.h"
#include "controller/host_faults.h"
#include "controller/job_book.h"
#include "controller/job_clients.h"
#include "controller/job_queue.h"
#include "controller/live_meshes.h"
#include "controller/membership.h"
#include "controller/mesh_watch.h"
#include "controller/message_tally.h"

namespace meshwright::controller {

struct CoreState {
  CoreState(CoreOptions all, uint64_t next_mesh_gen, ActorTableOptions of_actors)
      : options(std::move(all)),
        book(options.first_job),
        meshes(next_mesh_gen),
        actors(std::move(of_actors)) {}

  CoreOptions options;
  bool stopping = false;
  // What the planner was asked for that is not needed yet.
  struct PlanAheadUnderWay {
    JobId job{0};
    int64_t epoch = 0;
  };
  std::optional<PlanAheadUnderWay> plan_ahead;
  int64_t ahead_epochs = 0;  // that were begun
  int64_t last_tick_ms = -1;
  int64_t last_stall_ms = -1'000'000;  // when it came to its end
  Membership members;
  JobBook book;
  JobQueue queue;
  LiveMeshes meshes;
  MeshWatches watches;
  JobClients clients;
  ActorTable actors;
  HostFaults host_faults;
  MessageTally tally;
};

}  // namespace meshwright::controller
