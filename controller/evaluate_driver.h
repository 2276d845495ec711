// The driver that runs one program once over the validation data and adds its reports up.
//
// Where the program reports "loss_sum" and "count", the loss is their quotient. Thread rule: one
// thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/driver.h"

namespace meshwright::controller {

class EvaluateDriver final : public Driver {
 public:
  EvaluateDriver(std::string program, int64_t batches)
      : program_(std::move(program)), batches_(batches) {}

  std::optional<PlannedLaunch> Next() override;
  bool done() const override { return initialised_ && next_batch_ >= batches_; }
  // The last launch brings one record: the sums over all batches.
  DriverNews On(const PlannedLaunch& launch,
                const std::vector<proto::StepReport>& reports) override;

 private:
  const std::string program_;
  const int64_t batches_;
  bool initialised_ = false;
  int64_t next_batch_ = 0;
  double seconds_ = 0;
  std::map<std::string, double> sums_;
};

}  // namespace meshwright::controller
