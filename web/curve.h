// A job's steps with a bounded number of points, however long it trains: what a chart needs.
//
// A point stands for `stride` steps that follow one another. When there are too many points, each
// two become one and the stride doubles, so that the last step is always within the last point.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "proto/views.h"

namespace meshwright::web {

struct CurvePoint {
  int64_t step = 0;   // the last one, 0-based
  int64_t steps = 0;  // in it
  // Means over its steps that have a number; NaN: none has.
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  // The least and the largest of its steps.
  double least_loss = 0;
  double most_loss = 0;
  // Sums: tokens over seconds is a speed, seconds over steps the time of one.
  double tokens = 0;
  double seconds = 0;
  double validation_loss = std::numeric_limits<double>::quiet_NaN();  // the last one in it
};

class Curve {
 public:
  static constexpr size_t kMostPoints = 2000;
  // REQUIRES: most is even and above 0.
  explicit Curve(size_t most = kMostPoints) : most_(most) {}

  // In the order in which they came.
  void Add(const proto::StepMetrics& step);

  const std::vector<CurvePoint>& points() const { return points_; }
  int64_t stride() const { return stride_; }  // steps in every point but the last one
  // The same with at most so many points. REQUIRES: most > 0.
  std::vector<CurvePoint> Coarse(size_t most) const;

 private:
  size_t most_;
  int64_t stride_ = 1;
  std::vector<CurvePoint> points_;
};

}  // namespace meshwright::web
