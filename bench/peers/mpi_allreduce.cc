// All-reduce of float32 in place over MPI: mpi_allreduce BYTES REPEATS BATCHES under mpirun prints
// {"seconds": median per call} from rank 0. bench/run compiles it with mpicxx.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  const int count = std::max(1, std::atoi(argv[1]) / 4);
  const int repeats = std::atoi(argv[2]);
  const int batches = std::atoi(argv[3]);
  std::vector<float> data(static_cast<size_t>(count), 1.0f);
  MPI_Allreduce(MPI_IN_PLACE, data.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (data.front() != static_cast<float>(ranks) || data.back() != static_cast<float>(ranks)) {
    std::fprintf(stderr, "wrong sum %g\n", static_cast<double>(data.back()));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  std::fill(data.begin(), data.end(), 0.0f);
  std::vector<double> seconds;
  for (int batch = 0; batch <= batches; ++batch) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < repeats; ++i) {
      MPI_Allreduce(MPI_IN_PLACE, data.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    const double taken = (MPI_Wtime() - start) / repeats;
    if (batch > 0) seconds.push_back(taken);  // the first one warms up
  }
  std::sort(seconds.begin(), seconds.end());
  if (rank == 0) std::printf("{\"seconds\": %.9g}\n", seconds[seconds.size() / 2]);
  MPI_Finalize();
  return 0;
}
