import java.io.File;
import java.lang.management.ManagementFactory;

/** Uses a second of CPU. With a directory: creates `done` in it afterwards, and waits for `end`. */
class Work {
    static int burnLeaf(int x) {
        int sum = x;
        for (int i = 0; i < 20000; i++) sum = sum * 31 + (sum >>> 3) + i;
        return sum;
    }

    static int burnBranch(int x) {
        int sum = 0;
        for (int i = 0; i < 50; i++) sum += burnLeaf(x + i);
        return sum;
    }

    public static void main(String[] directory) throws Exception {
        int sum = 0;
        while (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() < 1_000_000_000L) sum += burnBranch(sum);
        System.out.println(sum);
        if (directory.length == 0) return;
        new File(directory[0], "done").createNewFile();
        // The wait has a limit, because the test may have failed.
        for (int i = 0; i < 6000 && !new File(directory[0], "end").exists(); i++) Thread.sleep(10);
    }
}
