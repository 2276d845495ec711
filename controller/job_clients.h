// JobClients: the clients of all jobs: who is there, what they asked, when a job is to end for want
// of them.
//
// Every job has a desk (controller/client_desk.h), which outlives its end, so that who comes back
// is told what it missed. What is asked is taken by the job's run, and answered when its mesh has
// reported. A job that its client drives ends well when the client has finished, or when nobody
// came or came back in time.
//
// Thread rule: the core's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "controller/core_context.h"
#include "controller/job_book.h"
#include "controller/mesh_work.h"
#include "controller/run.h"

namespace meshwright::controller {

class JobClients {
 public:
  // job: null: there is none of this number.
  void Attach(const AttachClient& event, const JobEntry* job, Context& context);
  // The job that the client has come to.
  std::optional<JobId> JobOf(ClientId client) const;
  // True: there is something to take. state: of the job's mesh; null: it does not run.
  bool Ask(const AskOfClient& event, const JobEntry* job, const StateNames* state,
           Context& context);
  // There may be room for an answer that there was none for.
  void Acknowledge(const AckOfClient& event, JobId job);
  // True: the job has come to its good end.
  bool Leave(const ClientGone& event, const JobEntry* job, Context& context);

  // It runs from now on: its clients may ask.
  void OpenJob(const JobEntry& job, Context& context);
  // What was asked and is not answered fails, once; who is there may ask again.
  void FailAsks(JobId job, const proto::RuntimeError& why, Context& context);
  // It has ended: everything that was asked fails, once. Who is away may come back to hear it.
  void CloseJob(JobId job, const proto::RuntimeError& cause, Context& context);
  void ForgetJob(JobId job) { desks_.erase(job); }
  // Its driver is told to come to an end, or will be once it has begun.
  void Finish(JobId job);
  bool HasFinished(JobId job) const;
  // Takes seats from those that were to come back by now. True: so nobody will come to drive it.
  bool GiveUp(const JobEntry& job, int64_t now_ms);

  // The next ask that can be carried out; those that cannot are answered.
  std::optional<ClientAsk> Take(const JobEntry& job, const CallSteps& steps, Context& context);
  // REQUIRES an ask that was taken.
  void Answer(JobId job, LaunchResult result, Context& context);

 private:
  struct Desk {
    ClientDesk clients;
    std::optional<int64_t> nobody_since_ms;  // it runs, and nobody came to drive it
    bool finished = false;
    std::set<ClientId> opened;  // who was told that it runs
  };

  void AttachToEnded(const AttachClient& event, const JobEntry& job, Context& context);
  void TellOpened(const JobEntry& job, ClientId client, Context& context);

  std::map<JobId, Desk> desks_;  // of those whose clients were heard of
  std::map<ClientId, JobId> job_of_client_;
};

}  // namespace meshwright::controller
