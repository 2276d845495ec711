#include "web/curve.h"

#include <algorithm>
#include <cmath>

namespace meshwright::web {
namespace {

// Of means that stand for so many values each; one that is no number counts as none.
double MeanOf(double a, int64_t a_count, double b, int64_t b_count) {
  if (!std::isfinite(a)) return b;
  if (!std::isfinite(b)) return a;
  const double all = static_cast<double>(a_count + b_count);
  return (a * static_cast<double>(a_count) + b * static_cast<double>(b_count)) / all;
}

double NumberOr(double value, double other) { return std::isfinite(value) ? value : other; }

CurvePoint PointOf(const proto::StepMetrics& step) {
  CurvePoint point;
  point.step = step.step;
  point.steps = 1;
  point.loss = point.least_loss = point.most_loss = step.loss;
  point.grad_norm = step.grad_norm;
  point.lr = step.lr;
  point.tokens = NumberOr(step.tokens, 0);
  point.seconds = NumberOr(step.seconds, 0);
  point.validation_loss = step.validation_loss;
  return point;
}

// `b` comes behind `a`.
CurvePoint Joined(const CurvePoint& a, const CurvePoint& b) {
  CurvePoint both;
  both.step = b.step;
  both.steps = a.steps + b.steps;
  both.loss = MeanOf(a.loss, a.steps, b.loss, b.steps);
  both.grad_norm = MeanOf(a.grad_norm, a.steps, b.grad_norm, b.steps);
  both.lr = MeanOf(a.lr, a.steps, b.lr, b.steps);
  both.least_loss =
      std::min(NumberOr(a.least_loss, b.least_loss), NumberOr(b.least_loss, a.least_loss));
  both.most_loss = std::max(NumberOr(a.most_loss, b.most_loss), NumberOr(b.most_loss, a.most_loss));
  both.tokens = a.tokens + b.tokens;
  both.seconds = a.seconds + b.seconds;
  both.validation_loss = NumberOr(b.validation_loss, a.validation_loss);
  return both;
}

// Groups of `group` points become one.
std::vector<CurvePoint> JoinGroups(const std::vector<CurvePoint>& points, size_t group) {
  std::vector<CurvePoint> joined;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i % group == 0) {
      joined.push_back(points[i]);
    } else {
      joined.back() = Joined(joined.back(), points[i]);
    }
  }
  return joined;
}

}  // namespace

void Curve::Add(const proto::StepMetrics& step) {
  const CurvePoint point = PointOf(step);
  if (!points_.empty() && points_.back().steps < stride_) {
    points_.back() = Joined(points_.back(), point);
    return;
  }
  if (points_.size() >= most_) {
    points_ = JoinGroups(points_, 2);
    stride_ *= 2;
  }
  points_.push_back(point);
}

std::vector<CurvePoint> Curve::Coarse(size_t most) const {
  if (points_.size() <= most) return points_;
  return JoinGroups(points_, (points_.size() + most - 1) / most);
}

}  // namespace meshwright::web
