// What people ask of the jobs and workers of a simulated cluster, and what workers say of
// themselves.
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {

template <typename Call>
Status SimCluster::Answer(Call call) {
  call.call = CallId(next_call_++);
  Run(call);
  return replies_.at(call.call.value()).status;
}

void SimCluster::Leave(const std::string& name, int64_t drain_ms) {
  Say(workers_.at(name), proto::Leave{"SIGTERM", drain_ms, {}});
}

Status SimCluster::Order(const std::string& name, proto::WorkerOrder order, int64_t deadline_ms) {
  return Answer(OrderWorker{CallId(0), name, order, deadline_ms});
}

Status SimCluster::Cancel(int64_t job) { return Answer(CancelJob{CallId(0), JobId(job)}); }
Status SimCluster::Pause(int64_t job) { return Answer(PauseJob{CallId(0), JobId(job)}); }
Status SimCluster::Resume(int64_t job) { return Answer(ResumeJob{CallId(0), JobId(job)}); }
Status SimCluster::Save(int64_t job) { return Answer(SaveJob{CallId(0), JobId(job)}); }

}  // namespace meshwright::controller
