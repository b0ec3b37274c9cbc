// Streams a certified cut to a Franka arm in C++, without Python between the robot and the file. It does what run_cut.py
// does up to the end of the motion or a stop; it does not go back by itself.
//
//     python run_cut.py --air --robot panda --plain air.txt      checks everything, writes one plain text file
//     g++ -std=c++14 -O2 stream_cut.cpp -o stream_cut -lfranka
//     ./stream_cut HOST air.txt air.json                         --no-realtime at the end: simulated robots only
//
// A Panda needs libfranka 0.9, an FR3 libfranka 0.10 or newer. Exit codes: 0 done, 2 refused and nothing moved, 3
// stopped on the way.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <franka/control_tools.h>
#include <franka/exception.h>
#include <franka/robot.h>

using Joints = std::array<double, 7>;
using Pose = std::array<double, 16>;  // column-major

struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr double kReady = 0.05, kStill = 0.01;             // [rad], [rad/s]
constexpr double kMassTolerance = 0.02, kTolerance = 1e-4;  // [kg], [-] and [m]
constexpr int kGlide = 2000, kSettle = 500, kLoud = 10;    // cycles
constexpr double kSmooth = 0.05, kStopShare = 0.9;         // as in cut_stream.py

// The plain file, in the order in which run_cut.py writes it; units are m, kg, N, Nm, rad, s and cycles of 1 ms.
struct Motion {
  std::string scan, kind, sha256;
  double mass;
  std::array<double, 3> centre;
  Pose edge;
  Joints stiffness, torque, acceleration;
  std::array<double, 6> force;
  double free_force, stop_force;
  int tare_from, tare_to, cut_from, first;
  std::vector<Joints> path;
};

template <typename T>
void read(std::istream& in, const std::string& name, T& values) {
  std::string word;
  in >> word;
  if (word != name) throw Refusal("the plain file has '" + word + "', expected " + name + ". Write it again with run_cut.py --plain.");
  for (auto& value : values) in >> value;
}

template <typename T>
T read_one(std::istream& in, const std::string& name) {
  std::array<T, 1> value{};
  read(in, name, value);
  return value[0];
}

Motion read_motion(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Refusal(file + " can't be read. Give the file of run_cut.py --plain.");
  Motion m;
  if (read_one<int>(in, "scan2cut-stream") != 1) throw Refusal(file + " was written by another version. Write it again with run_cut.py --plain.");
  m.scan = read_one<std::string>(in, "scan");
  m.kind = read_one<std::string>(in, "motion");
  m.sha256 = read_one<std::string>(in, "content_sha256");
  m.mass = read_one<double>(in, "mass_kg");
  read(in, "com_in_flange_m", m.centre);
  read(in, "F_T_E", m.edge);
  read(in, "stiffness_nm_rad", m.stiffness);
  read(in, "torque_nm", m.torque);
  read(in, "force_n", m.force);
  read(in, "acceleration_rad_s2", m.acceleration);
  m.free_force = read_one<double>(in, "free_force_n");
  m.stop_force = read_one<double>(in, "stop_force_n");
  m.tare_from = read_one<int>(in, "tare_from");
  m.tare_to = read_one<int>(in, "tare_to");
  m.cut_from = read_one<int>(in, "cut_from");
  m.first = read_one<int>(in, "first");
  m.path.resize(read_one<size_t>(in, "rows"));
  for (auto& row : m.path)
    for (auto& q : row) in >> q;
  std::string end;
  in >> end;
  if (!in || end != "end" || m.path.size() < 3) throw Refusal(file + " is incomplete. Write it again with run_cut.py --plain.");
  return m;
}

template <size_t N>
double apart(const std::array<double, N>& a, const std::array<double, N>& b) {
  double most = 0.0;
  for (size_t i = 0; i < N; ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

Pose without(const Pose& nominal, const Pose& pose) {  // inverse(nominal) * pose, of rigid poses
  Pose out{};
  for (int r = 0; r < 3; ++r)
    for (int c = 0; c < 4; ++c)
      for (int k = 0; k < 3; ++k)
        out[r + 4 * c] += nominal[k + 4 * r] * (pose[k + 4 * c] - (c == 3 ? nominal[k + 12] : 0.0));
  out[15] = 1.0;
  return out;
}

franka::Robot connect(const std::string& host, bool simulated) {
  if (!simulated && !franka::hasRealtimeKernel())
    throw Refusal("this computer has no real-time kernel. A real robot needs one. Install it; a simulated robot "
                  "can be run with --no-realtime.");
  try {
    return franka::Robot(host, simulated ? franka::RealtimeConfig::kIgnore : franka::RealtimeConfig::kEnforce);
  } catch (const franka::Exception& error) {
    throw Refusal("no robot with a protocol of this libfranka answers at " + host + " (" + error.what() +
                  "). Check the address, the cable, FCI in Desk and the robot's system version.");
  }
}

void set_up(franka::Robot& robot, const Motion& m) {
  auto state = robot.readOnce();
  if (!(state.m_ee <= kMassTolerance))
    throw Refusal("an end effector is configured in Desk. The knife is sent as the load. Set its mass to 0 in Desk.");
  robot.setLoad(m.mass, m.centre, {{1e-3, 0, 0, 0, 1e-3, 0, 0, 0, 1e-3}});
  robot.setEE(without(state.F_T_NE, m.edge));
  robot.setJointImpedance(m.stiffness);
  robot.setCollisionBehavior(m.torque, m.torque, m.force, m.force);
  for (int i = 0; i < kSettle; ++i) {
    state = robot.readOnce();
    if (std::abs(state.m_load - m.mass) <= kMassTolerance && apart(state.F_T_EE, m.edge) <= kTolerance) break;
    if (i + 1 == kSettle) throw Refusal("the robot does not accept the load and the end effector. Clear both in Desk.");
  }
  if (!(apart(state.dq, Joints{}) <= kStill)) throw Refusal("the arm is moving. It must be at rest before the motion. Wait.");
  if (!(apart(state.q_d, m.path.front()) <= kReady))
    throw Refusal("the arm is more than 50 mrad from its ready pose. Move it there with Desk or by hand guiding.");
}

std::string quoted(std::string text) {  // for JSON
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == '"' || c == '\\'; }, ' ');
  return '"' + text + '"';
}

double smooth(double s) { return s * s * s * (10.0 + s * (6.0 * s - 15.0)); }

Joints between(const std::vector<Joints>& path, double place) {  // a cubic through four samples
  const long last = static_cast<long>(path.size()) - 1, k = std::min(static_cast<long>(place), last);
  const double t = place - k;
  if (t == 0.0 || k == last) return path[k];
  const double w[4] = {0.5 * t * (t * (2.0 - t) - 1.0), 0.5 * (t * t * (3.0 * t - 5.0) + 2.0),
                       0.5 * t * (t * (4.0 - 3.0 * t) + 1.0), 0.5 * t * t * (t - 1.0)};
  Joints out{};
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 7; ++j) out[j] += w[i] * path[std::min(std::max(k - 1 + i, 0L), last)][j];
  return out;
}

class Run {
 public:
  explicit Run(const Motion& m) : m_(m), limit_(m.free_force) {
    rows_.reserve(2 * kGlide + 2 * m.path.size());
  }

  franka::JointPositions answer(const franka::RobotState& state, franka::Duration period) {
    const double passed = std::max<double>(1.0, period.toMSec());
    if (!begun_) {
      from_ = state.q_d;
      begun_ = true;
    } else {
      rows_.emplace_back(Row{place_ - m_.first, state});
      advance(state, passed);
    }
    if (glide_ < kGlide) {
      Joints q = m_.path.front();
      for (int j = 0; j < 7; ++j) q[j] = from_[j] + smooth(glide_ / kGlide) * (q[j] - from_[j]);
      return q;
    }
    franka::JointPositions q(between(m_.path, place_));
    if (place_ >= last() || (stopping_ > 0.0 && rate_ <= 0.0)) return franka::MotionFinished(q);
    return q;
  }

  const std::string& reason() const { return reason_; }
  bool moved() const { return !rows_.empty(); }

  void write_log(const std::string& file, const std::string& ended, bool simulated) const {
    std::ofstream out(file);
    out.precision(9);
    out << "{\"time\": [";
    for (const auto& row : rows_)
      out << (&row == &rows_[0] ? "" : ", ") << row.state.time.toSec() - rows_[0].state.time.toSec();
    out << "], \"motion_step\": [";
    for (const auto& row : rows_) out << (&row == &rows_[0] ? "" : ", ") << row.step;
    out << "]";
    field(out, "q", &franka::RobotState::q);
    field(out, "dq", &franka::RobotState::dq);
    field(out, "O_T_EE", &franka::RobotState::O_T_EE);
    field(out, "F_T_EE", &franka::RobotState::F_T_EE);
    field(out, "O_F_ext_hat_K", &franka::RobotState::O_F_ext_hat_K);
    field(out, "tau_ext_hat_filtered", &franka::RobotState::tau_ext_hat_filtered);
    out << ", \"scan2cut\": {\"scan\": " << quoted(m_.scan) << ", \"motion\": " << quoted(m_.kind)
        << ", \"content_sha256\": " << quoted(m_.sha256) << ", \"ended\": " << quoted(ended)
        << ", \"simulated\": " << (simulated ? "true" : "false") << "}}\n";
  }

 private:
  struct Row {
    double step;
    franka::RobotState state;
  };

  double last() const { return static_cast<double>(m_.path.size() - 1); }

  void advance(const franka::RobotState& state, double passed) {
    if (glide_ < kGlide) {
      glide_ += passed;
      return;
    }
    if (stopping_ == 0.0 && too_high(state)) {
      char text[80];
      std::snprintf(text, sizeof text, "The force reached %.0f N, more than %.0f N.", size(), limit_);
      reason_ = text;
      stopping_ = stopping_cycles();
    }
    if (stopping_ > 0.0) {
      slowed_ += passed;
      rate_ = 1.0 - smooth(std::min(1.0, slowed_ / stopping_));
    }
    place_ = std::min(last(), place_ + rate_ * passed);
  }

  bool too_high(const franka::RobotState& state) {
    const long step = std::lround(place_) - m_.first;
    for (int i = 0; i < 3; ++i) {
      const double reading = state.O_F_ext_hat_K[i];
      if (!tared_) tare_[i] = reading;
      if (step >= m_.tare_from && step <= m_.tare_to) sum_[i] += reading;
      if (step >= m_.cut_from && !cutting_ && count_ > 0) {
        tare_[i] = sum_[i] / count_;
        mean_[i] = 0.0;
      }
      mean_[i] = (1.0 - kSmooth) * mean_[i] + kSmooth * (reading - tare_[i]);
    }
    tared_ = true;
    if (step >= m_.tare_from && step <= m_.tare_to) ++count_;
    if (step >= m_.cut_from && !cutting_) {
      cutting_ = true;
      limit_ = m_.stop_force;
      loud_ = 0;
    }
    loud_ = size() > limit_ ? loud_ + 1 : 0;
    return loud_ >= kLoud;
  }

  double size() const { return std::sqrt(mean_[0] * mean_[0] + mean_[1] * mean_[1] + mean_[2] * mean_[2]); }

  double stopping_cycles() const {  // so long that no joint exceeds its acceleration limit
    const size_t k = std::min<size_t>(std::max<size_t>(std::lround(place_), 1), m_.path.size() - 2);
    double need = 0.05;
    for (int j = 0; j < 7; ++j) {
      const double a = m_.path[k - 1][j], b = m_.path[k][j], c = m_.path[k + 1][j], limit = m_.acceleration[j];
      const double room = kStopShare * limit - std::abs(c - 2 * b + a) * 1e6;
      need = std::max(need, 1.875 * std::abs(c - a) * 500 / std::max(room, 0.1 * limit));
    }
    return std::round(1000 * std::min(need, 0.8));
  }

  template <size_t N>
  void field(std::ostream& out, const char* name, std::array<double, N> franka::RobotState::*member) const {
    out << ", \"" << name << "\": [";
    for (const auto& row : rows_) {
      out << (&row == &rows_[0] ? "[" : ", [");
      for (size_t i = 0; i < N; ++i) out << (i ? ", " : "") << (row.state.*member)[i];
      out << "]";
    }
    out << "]";
  }

  const Motion& m_;
  bool begun_ = false, tared_ = false, cutting_ = false;
  Joints from_{};
  double glide_ = 0.0, place_ = 0.0, rate_ = 1.0, stopping_ = 0.0, slowed_ = 0.0, limit_;
  std::array<double, 3> tare_{}, mean_{}, sum_{};
  int count_ = 0, loud_ = 0;
  std::string reason_;
  std::vector<Row> rows_;
};

int main(int count, char** words) try {
  const std::vector<std::string> arguments(words + 1, words + count);
  const bool simulated = arguments.size() == 4 && arguments[3] == "--no-realtime";
  if (arguments.size() != 3 && !simulated) throw Refusal("usage: stream_cut HOST PLAIN_FILE NEW_LOG [--no-realtime]");
  const Motion motion = read_motion(arguments[1]);
  if (std::ifstream(arguments[2])) throw Refusal("the log " + arguments[2] + " exists. Name a new file.");
  franka::Robot robot = connect(arguments[0], simulated);
  set_up(robot, motion);
  std::cout << (motion.kind == "cut" ? "CUT of " : "Air cut of ") << motion.scan << ", " << motion.path.size() / 1000.0
            << " s. Make sure that nobody is within reach and hold the stop button. Type move to start: " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  if (answer != "move") throw Refusal("not confirmed.");
  Run run(motion);
  std::string reason;
  try {
    robot.control([&run](const franka::RobotState& s, franka::Duration d) { return run.answer(s, d); },
                  franka::ControllerMode::kJointImpedance, false, franka::kMaxCutoffFrequency);
    reason = run.reason();
  } catch (const franka::Exception& error) {
    reason = std::string("The robot stopped the motion (") + error.what() + ").";
  }
  if (!run.moved()) throw Refusal(reason + " Nothing moved.");
  run.write_log(arguments[2], reason.empty() ? "finished" : reason, simulated);
  std::cout << (reason.empty() ? "Motion finished." : "NOT FINISHED: " + reason) << std::endl;
  return reason.empty() ? 0 : 3;
} catch (const std::exception& reason) {
  std::cout << "REFUSED: " << reason.what() << std::endl;
  return 2;
}
