// The driver that runs one program once over the validation data and reduces its reports: each
// scalar to its sum or its mean over the batches, as its output says (ir::Reduction). All batches
// have as many rows, so that a mean of their means is that of all rows.
//
// Where the program reports "loss_sum" and "count", the loss is their quotient. Thread rule: one
// thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/driver.h"

namespace meshwright::controller {

class EvaluateDriver final : public Driver {
 public:
  EvaluateDriver(const ir::JobProgram& program, int64_t batches);

  std::optional<PlannedLaunch> Next() override;
  bool done() const override { return initialised_ && next_batch_ >= batches_; }
  // The last launch brings one record: what all batches come to.
  DriverNews On(const PlannedLaunch& launch,
                const std::vector<proto::StepReport>& reports) override;

 private:
  const std::string program_;
  const int64_t batches_;
  std::set<std::string> means_;  // else sums
  bool initialised_ = false;
  int64_t next_batch_ = 0;
  double seconds_ = 0;
  std::map<std::string, double> values_;
};

}  // namespace meshwright::controller
