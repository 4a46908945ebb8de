import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;

/** Works for some seconds below thirteen methods, none of which can be inlined: each call has eight targets. */
class Callers {
    interface Step {
        long work(int kind);

        long run(Step[] steps, int depth, int kind);
    }

    static volatile Object sink;

    static class Recursion implements Step {
        static long fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
        public long work(int kind) { return fib(16 + kind % 3); }
        public long run(Step[] steps, int depth, int kind) {
            return depth == 0 ? steps[kind].work(kind) : steps[(depth * (kind + 3) + kind) % 8].run(steps, depth - 1, kind) * 31 + depth;
        }
    }

    static class Numbers implements Step {
        public long work(int kind) {
            double a = kind, b = 1, c = 2, d = 3;
            long e = kind, f = 1, g = 2, h = 3, i = 4, j = 5, k = 6, l = 7;
            for (int n = 0; n < 4000; n++) {
                a = a * 1.0001 + b; b = b * 0.999 + c; c = c - d; d = d * 0.5 + a * 1e-9;
                e = e * 31 + f; f ^= g >>> 3; g += h * l; h = h * 17 + i; i ^= j << 2; j += k; k = k * 7 + l; l ^= e;
            }
            return (long) (a + b + c + d) + e + f + g + h + i + j + k + l;
        }
        public long run(Step[] steps, int depth, int kind) {
            return depth == 0 ? steps[kind].work(kind) : steps[(depth * (kind + 3) + kind) % 8].run(steps, depth - 1, kind) * 37 + depth;
        }
    }

    static class Strings implements Step {
        public long work(int kind) {
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < 100; i++) text.append(i).append(',').append("x".repeat(kind));
            return text.toString().split(",").length;
        }
        public long run(Step[] steps, int depth, int kind) {
            return depth == 0 ? steps[kind].work(kind) : steps[(depth * (kind + 3) + kind) % 8].run(steps, depth - 1, kind) * 41 + depth;
        }
    }

    static class Maps implements Step {
        public long work(int kind) {
            HashMap<Integer, String> map = new HashMap<>();
            for (int i = 0; i < 300; i++) map.merge(i * kind % 97, "v" + i, (a, b) -> a.length() < 40 ? a + b : b);
            return map.values().stream().mapToInt(String::length).sum();
        }
        public long run(Step[] steps, int depth, int kind) {
            return depth == 0 ? steps[kind].work(kind) : steps[(depth * (kind + 3) + kind) % 8].run(steps, depth - 1, kind) * 43 + depth;
        }
    }

    static class Sorting implements Step {
        public long work(int kind) {
            Integer[] values = new Integer[300];
            for (int i = 0; i < values.length; i++) values[i] = (i * 7919 + kind) % 1009;
            Arrays.sort(values, (a, b) -> a % 100 != b % 100 ? Integer.compare(a % 100, b % 100) : a - b);
            return values[7];
        }
        public long run(Step[] steps, int depth, int kind) {
            return depth == 0 ? steps[kind].work(kind) : steps[(depth * (kind + 3) + kind) % 8].run(steps, depth - 1, kind) * 47 + depth;
        }
    }

    static class Copies implements Step {
        final byte[] from = new byte[100_000], to = new byte[100_000];
        public long work(int kind) {
            for (int i = 0; i < 10; i++) System.arraycopy(from, kind + i, to, i, 90_000);
            return to[kind];
        }
        public long run(Step[] steps, int depth, int kind) {
            return depth == 0 ? steps[kind].work(kind) : steps[(depth * (kind + 3) + kind) % 8].run(steps, depth - 1, kind) * 53 + depth;
        }
    }

    static class Exceptions implements Step {
        static long fail(int n) {
            if (n == 0) throw new IllegalStateException("expected");
            return fail(n - 1) + 1;
        }
        public long work(int kind) {
            long caught = 0;
            for (int i = 0; i < 5; i++) {
                try { caught += fail(kind); } catch (IllegalStateException e) { caught++; }
            }
            return caught;
        }
        public long run(Step[] steps, int depth, int kind) {
            return depth == 0 ? steps[kind].work(kind) : steps[(depth * (kind + 3) + kind) % 8].run(steps, depth - 1, kind) * 59 + depth;
        }
    }

    static class Garbage implements Step {
        public long work(int kind) {
            ArrayList<int[]> list = new ArrayList<>();
            for (int i = 0; i < 200; i++) list.add(new int[64 + kind]);
            sink = list;
            synchronized (list) { return list.size(); }
        }
        public long run(Step[] steps, int depth, int kind) {
            return depth == 0 ? steps[kind].work(kind) : steps[(depth * (kind + 3) + kind) % 8].run(steps, depth - 1, kind) * 61 + depth;
        }
    }

    public static void main(String[] seconds) {
        Step[] steps = {
            new Recursion(), new Numbers(), new Strings(), new Maps(), new Sorting(), new Copies(), new Exceptions(), new Garbage(),
        };
        long end = System.nanoTime() + Long.parseLong(seconds[0]) * 1_000_000_000L, sum = 0;
        for (int round = 0; round % 32 != 0 || System.nanoTime() < end; round++) sum += steps[round % 8].run(steps, 12, round % 8);
        System.out.println(sum);
    }
}
